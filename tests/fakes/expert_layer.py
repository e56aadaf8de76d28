"""One layer of experts as an engine reports it whose loader takes both forms."""

from rlfleet_contract.engine.tensor_names import Experts

PLACE = "model.layers.0.mlp.experts"
BOTH = Experts(
    places=(PLACE,),
    gate="gate_proj",
    up="up_proj",
    down="down_proj",
    fused_gate_up="gate_up_proj",
    fused_down="down_proj",
)
