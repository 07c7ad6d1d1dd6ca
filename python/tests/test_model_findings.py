"""How check_model's report words what a layer's diagnosis cannot tell apart. No model is run."""
import types

from sightline._model_findings import Findings


def fault(slug, **parameters):
    return types.SimpleNamespace(slug=slug, variant="", what=f"what {slug} is", parameters=parameters, misfit=0.5,
                                 certain=False)


def ambiguous(*faults):
    return types.SimpleNamespace(
        verdict="ambiguous", faults=list(faults),
        summary="ambiguous: this input cannot tell apart rope.base:theta=5 and mask.causal_dropped, or rope.base:theta=7")


def made(findings):
    return findings.report("declared", "reproducer")


def test_alternatives_keep_their_own_parameters_and_are_joined_by_or():
    findings = Findings()
    findings.told_apart(ambiguous(fault("rope.base", theta=5), fault("mask.causal_dropped"),
                                  fault("rope.base", theta=7)), 2, "in one call, layer 2")
    report = made(findings)
    assert report.verdict == "ambiguous"
    assert "rope.base:theta=5 and mask.causal_dropped, or rope.base:theta=7" in report.summary, report.summary
    assert [f.parameters.get("theta") for f in report.faults] == [5, None, 7], str(report)
    assert all(f.parameters["layer"] == 2 for f in report.faults)


def test_alternatives_beside_a_fault_leave_it_the_verdict():
    findings = Findings()
    findings.fault("loss.label_shift", "", "targets are not shifted", [], 0.0, True)
    findings.told_apart(ambiguous(fault("rope.base", theta=5), fault("rope.base", theta=7)), 0, "in one call, layer 0")
    report = made(findings)
    assert report.verdict == "fault" and report.summary.startswith("fault: loss.label_shift"), report.summary
    assert "beside it one of" in report.summary and ", or " in report.summary
    assert len(report.faults) == 3


def test_alternatives_beside_a_fault_that_is_not_certain_are_joined_to_it_by_or():
    findings = Findings()
    findings.fault("grad.nondeterminism", "", "the gradient is another each time", [], 0.0, False)
    findings.told_apart(ambiguous(fault("rope.base", theta=5)), 0, "in one call, layer 0")
    report = made(findings)
    assert report.verdict == "ambiguous"
    assert "cannot tell apart grad.nondeterminism, or rope.base:theta=5" in report.summary, report.summary
