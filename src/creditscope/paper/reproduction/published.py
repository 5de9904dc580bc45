"""Every published number that is compared with, in the order of the page. Nothing else uses these numbers."""

from creditscope.paper.reproduction._audit_numbers import audit_numbers
from creditscope.paper.reproduction._entries import AUDIT, GRAPHS, PENALTY, SIZES, TRACES
from creditscope.paper.reproduction._graph_numbers import graph_numbers
from creditscope.paper.reproduction._training_numbers import penalty_numbers, size_numbers, trace_numbers

PUBLISHED = (*audit_numbers(), *size_numbers(), *penalty_numbers(), *trace_numbers(), *graph_numbers())
WHERE = {
    AUDIT: "figure and audit table (accuracies ± sd over 3 seeds; cosines of block FA and, of width 256, DFA: 3 seeds, "
    "those of width 512 and norms: seed 42)",
    SIZES: "text and tables on training; the depth scan has 3 seeds",
    PENALTY: "figure, with the corrections made later, and tables (± sd over 3 seeds, or one value per seed); where no "
    "number of seeds is given, none is stated",
    TRACES: "decision table and text; one value per seed where there are three",
    GRAPHS: "papers on deep GCNs and on KAFT; public split, number of seeds not stated",
}
"""Where the numbers of a part are said."""
NOT_COMPARED = (
    "equilibrium propagation, the state and credit bridges, a CNN and CIFAR-100: rules, a net and a task that do not "
    "exist here",
    "nets without skips, and λ of 1e-3 and 1e-1: no number is at hand",
    "the cosine of DFA's last feedback under the published conventions, which draw it and give it to no block",
    "GCNs: accuracies on 60/20/20 splits (BP, DFA-GNN with and without pseudo-errors), of BP with pseudo-errors, and "
    "of GCNII: neither those splits nor that rule nor that net exist here",
)
"""Published numbers that no run here could give."""
