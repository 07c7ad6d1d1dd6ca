"""What check_model has found of a model so far, and the report that it makes. Asks the model nothing."""
from . import _core
from ._report import report_from


def layer_parameters(layer, fault):
    """What was measured of a layer's fault, for a report on the model."""
    return [("layer", float(layer), "the first whose attention differs, from 0"),
            *((name, float(value), "") for name, value in fault.parameters.items())]


class Findings:
    """What has been found so far, and the report that it makes."""

    def __init__(self):
        self.faults, self.evidence, self.unseen, self.broken_relations = [], [], [], []
        self.differences, self.unexplained = [], []
        self.broken, self.held, self.right, self.wrong_layer = None, 0, {}, None
        self.alternatives, self.alternatives_text = [], ""

    def fault(self, slug, variant, what, parameters, misfit, certain, where=""):
        """One fault a slug: what is found of it later is added to what was found first."""
        entry = (slug, variant, what + (f" ({where})" if where else ""), parameters, float(misfit), bool(certain))
        for i, old in enumerate(self.faults):
            if old[0] == slug:
                parts = [old[2]] + [entry[2]] * (entry[2] != old[2])
                known = {name for name, *_ in old[3]}
                self.faults[i] = (slug, old[1] or variant, "; ".join(parts),
                                  old[3] + [p for p in parameters if p[0] not in known], max(old[4], entry[4]),
                                  old[5] or entry[5])
                return
        self.faults.append(entry)

    def told_apart(self, report, layer, where):
        """Keeps what a layer's report cannot tell apart: alternatives, each with its own parameters, which stay as they
        are listed there. One of them may be two faults at once, so the report's own words join them."""
        self.alternatives_text = report.summary.partition("cannot tell apart ")[2] + f" ({where})"
        self.alternatives = [
            (fault.slug, fault.variant, f"{fault.what} ({where}; one of several explanations)",
             layer_parameters(layer, fault), float(fault.misfit), False) for fault in report.faults]

    def report(self, declared, reproducer):
        """A Report."""
        names = " and ".join(slug + (f"/{variant}" if variant else "") for slug, variant, *_ in self.faults)
        if self.broken:
            verdict, summary = "broken", "broken: " + self.broken
        elif self.alternatives and not any(entry[5] for entry in self.faults):
            text = ", or ".join([*filter(None, [names]), self.alternatives_text])
            verdict, summary = "ambiguous", f"ambiguous: these calls cannot tell apart {text}"
        elif self.faults:
            verdict, summary = "fault", f"fault: {names}: {self.faults[0][2]}"
            if self.alternatives:
                summary += f"; beside it one of {self.alternatives_text}"
        elif self.broken_relations or self.unexplained:
            what = self.unexplained + [r.name for r in self.broken_relations]
            verdict = "unknown"
            summary = "unknown: " + ("" if self.unexplained else "it does not hold that ") + what[0]
        else:
            verdict = "agrees" if self.held else "unknown"
            right = [f"the {name} is right" for name, ok in self.right.items() if ok]
            summary = ", ".join([f"agrees: {self.held} relations hold", *right]) if self.held else (
                "unknown: no relation could be asked of this model")
        ask = "" if verdict != "unknown" else "sl.record(model) around one failing call, and dump.diagnose(layer, spec)"
        return report_from(*_core.make_report(
            verdict=verdict, summary=summary, faults=[] if self.broken else self.faults + self.alternatives,
            evidence=[(what, float(value)) for what, value in self.evidence], next_probe=ask,
            first_difference=self.differences[0] if self.differences else None, blind_spots=self.unseen,
            declared=declared, reproducer=reproducer))
