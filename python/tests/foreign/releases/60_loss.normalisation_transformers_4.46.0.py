"""transformers 4.46.0: Trainer with gradient_accumulation_steps=2 and a model whose forward takes no loss arguments.

Report: huggingface/transformers#37766. The step's mean is left to the model. One that knows nothing of it returns the
mean of its micro-batch, and the means are added.
Seen in 4.46.0; 4.51.3 divides by the number of micro-batches, the declared mean where all have as many targets.
Mended: pip install torch==2.4.1 transformers==4.51.3 accelerate==1.0.1 "numpy<2"
Install: pip install torch==2.4.1 transformers==4.46.0 accelerate==1.0.1 "numpy<2"
"""
import tempfile

import numpy as np

VOCAB, WIDTH = 6, 3
SEQUENCES = ([1, 5, 2, 2, 0], [3, 4, 1, 0, 5])


def declared():
    return {"kind": "loss", "sequences": SEQUENCES, "micro_batches": [[0], [1]], "shift": 1, "vocab": VOCAB,
            "logits": "table[id] @ head.T", "returns": "d loss / d head"}


def inputs():
    rng = np.random.default_rng(60)
    return {name: rng.standard_normal((VOCAB, WIDTH)).astype(np.float32) for name in ("table", "head")}


def subject(table, head):
    import torch
    import transformers

    class Bigram(torch.nn.Module):
        """Scores the next token by the last one alone."""

        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.tensor(table, dtype=torch.float32), requires_grad=False)
            self.head = torch.nn.Parameter(torch.tensor(head, dtype=torch.float32))

        def forward(self, input_ids, labels):
            logits = self.table[input_ids] @ self.head.T
            return {"loss": torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()),
                    "logits": logits}

    transformers.logging.set_verbosity_error()
    model = Bigram()
    options = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=1, gradient_accumulation_steps=2, max_steps=1,
        max_grad_norm=0.0, use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        remove_unused_columns=False)
    optimizer = torch.optim.SGD([model.head], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    before = model.head.detach().clone()
    transformers.Trainer(
        model=model, args=options, train_dataset=[{"input_ids": s, "labels": s} for s in SEQUENCES],
        data_collator=lambda rows: {name: torch.tensor([row[name] for row in rows]) for name in rows[0]},
        optimizers=(optimizer, schedule)).train()
    return (before - model.head.detach()).numpy()
