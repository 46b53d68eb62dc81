import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from berdiff.training.ema import Ema, ema_decay


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(4, 5))


def _wander(net: nn.Module) -> None:
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn_like(p))
        net[1].running_mean.add_(1.0)
        net[1].num_batches_tracked.add_(1)


def test_agrees_with_torchs_own_average() -> None:
    net = _net()
    ours, theirs = Ema(net), AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    theirs.update_parameters(net)  # its first update only copies
    for _ in range(20):
        _wander(net)
        ours.update(0.9)
        theirs.update_parameters(net)
    for a, b in zip(ours.averages, theirs.module.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-5, atol=1e-6)


def test_buffers_are_averaged_where_asked_and_integers_copied() -> None:
    """BatchNorm's statistics belong to the weights they were seen with (0.1.0 showed the raw ones)."""
    for buffers, mean in ((True, 0.5), (False, 1.0)):
        net = _net()
        ema = Ema(net, buffers)
        _wander(net)
        ema.update(0.5)
        with ema.in_place():
            assert torch.equal(net[1].running_mean, torch.full((3,), mean))
            assert int(net[1].num_batches_tracked) == 1
        assert torch.equal(net[1].running_mean, torch.ones(3))


def test_warm_up_weighs_early_steps_like_a_short_average() -> None:
    """With decay (1 + n) / (10 + n) the weights of all updates add up to one, and the start is soon forgotten."""
    weights = [1.0]  # of the start
    for updates in range(1000):
        decay = ema_decay(0.9999, updates, warmup=True)
        weights = [w * decay for w in weights] + [1 - decay]
    assert abs(sum(weights) - 1) < 1e-12
    assert weights[0] < 1e-15
    assert ema_decay(0.9999, 10**6, warmup=True) == 0.9999
    assert ema_decay(0.9999, 0, warmup=False) == 0.9999


def test_in_place_and_back_bit_for_bit_even_after_an_error() -> None:
    net = _net()
    ema = Ema(net)
    _wander(net)
    before = [p.detach().clone() for p in net.parameters()]
    addresses = [p.data_ptr() for p in net.parameters()]
    try:
        with ema.in_place():
            assert all(torch.equal(p, a) for p, a in zip(net.parameters(), ema.averages, strict=True))
            assert not all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))
            raise KeyError
    except KeyError:
        pass
    assert all(torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True))
    assert addresses == [p.data_ptr() for p in net.parameters()]
