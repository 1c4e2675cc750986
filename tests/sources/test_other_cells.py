"""Names of classes that compute something else than the RNN that they resemble."""

import pytest

from rnnlayout._sources.other_cells import difference_of_class

OTHERS = """Addons>PeepholeLSTMCell LayerNormLSTMCell tfa.LayerNormBasicLSTMCell LNLSTM BN_LSTMCell
NormalizedGRU mLSTM my.mLSTMCell MultiplicativeLSTM GRUD GRU_D DecayLSTM PhasedLSTM ConvLSTMCell
ConvLSTM2D ZoneoutLSTMCell AttentionLSTM LSTMAttn LoRALSTM sLSTM xLSTMBlock CIFGLSTM MinimalRNN
LiGRU minGRU TimeAwareLSTM"""
UNKNOWN = """Mine MyLSTM CustomLSTM DropoutLSTM BiLSTM NormalLSTM GRUDecoder ConvertedLSTM Attribute
WeightNormLSTM layernorm.MyLSTM peephole>MyLSTM LSTMModel Encoder StackedLSTM my_lstm ScaledLSTM"""


@pytest.mark.parametrize("name", OTHERS.split())
def test_known_names(name):
    assert difference_of_class(name)


@pytest.mark.parametrize("name", UNKNOWN.split())
def test_other_names(name):
    assert not difference_of_class(name)
