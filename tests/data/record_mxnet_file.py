"""Write checkpoints of MXNet Gluon, and mxnet-run.npz, what their RNNs compute.

In an environment of its own: pip install mxnet==1.9.1 "numpy<1.24", then run this file.
"""

from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).parent
mx.random.seed(7)
net = mx.gluon.nn.HybridSequential()
with net.name_scope():
    net.add(mx.gluon.rnn.LSTM(3, 2, layout="NTC", bidirectional=True, input_size=5))
    net.add(mx.gluon.rnn.GRU(4, layout="NTC", input_size=6))
net.initialize(mx.init.Normal(0.4))
for parameter in net.collect_params().values():  # also the biases
    parameter.set_data(mx.nd.random.normal(scale=0.4, shape=parameter.shape))
net.hybridize()
x = mx.nd.random.normal(shape=(2, 7, 5))
y, z = net[0](x), net(x)
net.export(str(HERE / "mxnet"))  # mxnet-0000.params
(HERE / "mxnet-symbol.json").unlink()
net.save_parameters(str(HERE / "mxnet-gluon.params"))
arrays = {name: mx.nd.ones((2, 3)).astype(name) for name in
          ("float16", "float32", "float64", "uint8", "int8", "int32", "int64")}  # fmt: skip
mx.nd.save(str(HERE / "mxnet-dtypes.params"), arrays)
np.savez(HERE / "mxnet-run.npz", x=x.asnumpy(), y=y.asnumpy(), z=z.asnumpy())
