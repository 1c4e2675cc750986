"""Write paddle.pdparams, a checkpoint of Paddle, and paddle-run.npz, what its RNNs compute.

In an environment of its own: pip install paddlepaddle==3.3.1, then run this file.
"""

from pathlib import Path

import numpy as np
import paddle

HERE = Path(__file__).parent
paddle.seed(7)
encoder = paddle.nn.LSTM(5, 3, 2, direction="bidirect")
decoder = paddle.nn.GRU(6, 4)
x = paddle.randn([2, 7, 5])  # (N, T, I)
y, (h, c) = encoder(x)
z, last = decoder(y)
checkpoint = {
    "encoder": encoder.state_dict(),
    "decoder": decoder.state_dict(),
    "epoch": 3,
    "mean": paddle.ones([2], "bfloat16"),
}
paddle.save(checkpoint, str(HERE / "paddle.pdparams"))
paddle.save(encoder.state_dict(), str(HERE / "paddle-encoder.pdparams"))
np.savez(HERE / "paddle-run.npz", x=x, y=y, h=h, c=c, z=z, last=last)
