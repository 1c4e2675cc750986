"""The formats of real-time audio: models as JSON, for RTNeural and Neural Amp Modeler."""
