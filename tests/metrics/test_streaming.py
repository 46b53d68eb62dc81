"""The TorchMetrics classes: batches add up, two processes equal one, every case is kept."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from berdiff import metrics
from berdiff.errors import InputError
from berdiff.metrics import streaming

CLASSES = {
    streaming.GED: metrics.ged,
    streaming.UnbiasedGED: metrics.ged_unbiased,
    streaming.HMIoU: metrics.hm_iou,
    streaming.DMax: metrics.d_max,
    streaming.Dice: metrics.dice,
    streaming.SoftDice: metrics.soft_dice,
    streaming.ECE: metrics.ece,
    streaming.Brier: metrics.brier,
    streaming.NLL: metrics.nll,
}


def some_cases(b=7, n=3, r=4, k=2):
    generator = torch.Generator().manual_seed(0)
    samples, masks = (torch.randint(2, (b, m, k, 6, 6), generator=generator).to(torch.uint8) for m in (n, r))
    return samples, masks, torch.randint(1, r + 1, (b,), generator=generator)


def test_batches_add_up():
    samples, masks, raters = some_cases()
    for kind, function in CLASSES.items():
        metric = kind()
        for part in (slice(0, 3), slice(3, 4), slice(4, 7)):
            metric.update(samples[part], masks[part], raters[part])
        expected = function(samples, masks, raters)
        torch.testing.assert_close(metric.per_case(), expected, rtol=0, atol=0)
        torch.testing.assert_close(metric.compute(), expected.mean(), rtol=0, atol=0)


def test_states_merge_and_repeated_cases_count_once():
    samples, masks, raters = some_cases()
    one, two = streaming.GED(), streaming.GED()
    one.update(samples[::2], masks[::2], raters[::2], index=torch.arange(0, 7, 2))
    again = torch.tensor([1, 3, 5, 0])  # a distributed sampler repeats case 0 to make the parts equal
    two.update(samples[again], masks[again], raters[again], index=again)
    one.merge_state(two)
    torch.testing.assert_close(one.per_case(), metrics.ged(samples, masks, raters), rtol=0, atol=0)


def _one_of_two(rank: int, address: str, out: str) -> None:
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    samples, masks, raters = some_cases()
    mine = torch.tensor([[0, 2, 4, 6], [1, 3, 5]][rank])  # uneven on purpose
    found = {}
    for kind in CLASSES:
        metric = kind()
        for i in mine.split(2):
            metric.update(samples[i], masks[i], raters[i], index=i)
        with metric.sync_context():
            found[kind.__name__] = metric.per_case()
        found[kind.__name__ + ".mean"] = metric.compute()
        assert len(metric.per_case()) == len(mine)  # its own again afterwards
    torch.save(found, f"{out}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow  # two imports of torch
def test_two_processes_equal_one(tmp_path):
    mp.start_processes(_one_of_two, (f"file://{tmp_path}/meet", str(tmp_path)), nprocs=2, start_method="spawn")
    samples, masks, raters = some_cases()
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for kind, function in CLASSES.items():
            expected = function(samples, masks, raters)
            assert torch.equal(found[kind.__name__], expected)
            assert torch.equal(found[kind.__name__ + ".mean"], expected.mean())


def test_no_case_and_half_given_indices_are_refused():
    samples, masks, _ = some_cases()
    metric = streaming.GED()
    with pytest.raises(InputError, match="GED: expected at least one case before compute, found none"):
        metric.per_case()
    metric.update(samples, masks)
    metric.update(samples, masks, index=torch.arange(7))
    with pytest.raises(InputError, match="an index with every update or with none"):
        metric.per_case()
    with pytest.raises(InputError, match="index: expected 7 whole numbers"):
        metric.update(samples, masks, index=torch.arange(6))
