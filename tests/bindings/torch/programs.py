# SPDX-License-Identifier: Apache-2.0
"""Programs that go backward: each is run by plain PyTorch and by engines, and leaves gradients to compare.

A term is a piece of a loss. It calls models, uses their parameters, takes gradients itself; what it sees of gradients on the
way (at leaves, in hooks, from torch.autograd.grad) it notes in side.seen. Some terms go backward once more after the loss."""
import contextlib
import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from outrigger.torch import zero

SIZE = 6


class Model(nn.Module):
    """Smooth, so that its second and third derivatives are there. Leaves a tensor in its attributes."""

    def __init__(self, seed, kind=None):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b, self.kind, self.left = nn.Linear(SIZE, 8), nn.Linear(8, SIZE), kind, []

    def forward(self, x, many=False):
        hidden = torch.tanh(self.a(x))
        self.aux = hidden.square().mean()
        self.left.clear()
        self.left.append(hidden.mean())
        y = self.b(hidden) if self.kind is None else checkpoint(lambda h: self.b(torch.tanh(h) * 1.5), hidden, use_reentrant=self.kind == "reentrant")
        return {"y": y, "again": [y, (y, "text")], "more": y + 1} if many else y


class Side:
    """Plain PyTorch, or engines where there are some."""

    def __init__(self, models, engines=None):
        self.models, self.engines = models, engines
        self.seen, self.later = [], []

    def module(self, index):
        return self.engines[index].module if self.engines else self.models[index]

    def parameters(self, index):
        return list(self.module(index).parameters())

    def gathered(self, index):
        return zero.GatheredParameters(self.parameters(index)) if self.engines else contextlib.nullcontext()

    def call(self, index, x, **options):
        if not self.engines:
            return self.models[index](x, **options)
        engine = self.engines[index]
        # float32 that needs a gradient enters a float16 engine as it is.
        cast = not (x.requires_grad and engine.compute_dtype == torch.float16)
        return engine(x.to(engine.compute_dtype) if cast else x, **options)

    def note(self, what, value):
        self.seen.append((what, None if value is None else value.detach().float().clone()))

    def backward(self, loss, form, index, **options):
        """In one of the forms that a user writes."""
        if form == "roots":
            torch.autograd.backward([loss * 0.25, loss * 0.75], **options)
        elif form == "function":
            torch.autograd.backward(loss, **options)
        elif form == "gradient":
            (loss * torch.ones(3)).backward(torch.full((3,), 1 / 3), **options)
        elif form == "loss" or not self.engines:
            loss.backward(**options)
        elif form == "engine":
            self.engines[index].backward(loss, **options)
        else:
            assert form == "scale", form
            self.engines[index].scale(loss).backward(**options)


FORMS = ("loss", "engine", "scale", "function", "roots", "gradient")
# The forms in which an engine knows the root.
ROOTED = ("engine", "scale")


def batch(seed, rank=0):
    generator = torch.Generator().manual_seed(1000 * rank + seed)
    return torch.randn(4, SIZE, generator=generator), torch.randn(4, SIZE, generator=generator)


def leaf(side, what, value):
    made = value.detach().clone().requires_grad_()
    side.later.append(lambda: side.note(what, made.grad))
    return made


# ---- Terms: term(side, first, second, x, t) gives a scalar; first and second are numbers of models ----


def plain(side, first, second, x, t):
    return nn.functional.mse_loss(side.call(first, x).float(), t)


def chain(side, first, second, x, t):
    middle = leaf(side, "a parameter between", torch.linspace(0.5, 1.5, SIZE))
    return nn.functional.mse_loss(side.call(second, side.call(first, x).float() * middle).float(), t)


def product(side, first, second, x, t):
    return (side.call(first, x).float() * side.call(second, t).float()).sum(1).sin().mean()


def shared_output(side, first, second, x, t):
    y = side.call(first, x).float()
    return y.sin().mean() + (y * side.call(second, y).float()).mean()


def repeated_outputs(side, first, second, x, t):
    y = side.call(first, x, many=True)
    return (y["y"].float() * t + y["again"][0].float() * 2 + y["again"][1][0].float().square() + y["more"].float()).mean()


def leaf_input(side, first, second, x, t):
    return nn.functional.mse_loss(side.call(first, leaf(side, "an input", x)).float(), t)


def cut(side, first, second, x, t):
    """The head's backward ends at a leaf; the encoder goes on from there."""
    z = side.call(first, x).float()
    cut_here = z.detach().requires_grad_()

    def go_on():
        side.note("a cut", cut_here.grad)
        z.backward(cut_here.grad)
    side.later.append(go_on)
    return nn.functional.mse_loss(side.call(second, cut_here).float(), t)


def written_into(side, first, second, x, t):
    y = side.call(first, x)
    y += 1
    y.mul_(0.5)
    return nn.functional.mse_loss(y.float(), t)


def hooks(side, first, second, x, t):
    """They read, and change."""
    y = side.call(first, x)
    y.retain_grad()

    def change(grad):
        side.note("an output's hook", grad)
        return grad.clamp(-0.02, 0.02) * 0.5
    y.register_hook(change)
    side.later.append(lambda: side.note("an output's grad", y.grad))
    z = y.float() * 3
    z.register_hook(lambda grad: side.note("a hook outside", grad))
    return nn.functional.mse_loss(z, t)


def taken_by_grad(side, first, second, x, t):
    """torch.autograd.grad of an input, an output and parameters, without a backward; the output's gradient goes on by hand."""
    inner = x.clone().requires_grad_()
    y = side.call(first, inner).float()
    loss = nn.functional.mse_loss(side.call(second, y).float(), t)
    wanted = [inner, y, *side.parameters(first), side.parameters(second)[0]]
    grads = torch.autograd.grad(loss, wanted, retain_graph=True)
    for each in grads:
        side.note("torch.autograd.grad", each)
    side.later.append(lambda: y.backward(grads[1] * 0.5))
    return plain(side, first, second, x, t)


def weight_penalty(side, first, second, x, t):
    with side.gathered(first):
        penalty = sum(each.float().square().sum() for each in side.parameters(first))
    return nn.functional.mse_loss(side.call(first, x).float(), t) + 0.3 * penalty


def weight_outside(side, first, second, x, t):
    """A parameter of one model in what is computed with another's output."""
    y, weight = side.call(second, x).float(), side.module(first).b.weight
    with side.gathered(first):
        return (torch.cat([weight.float() * 2, weight[:1].float()]).sin().mean()
                + nn.functional.linear(y, weight.float().T).square().mean())


def input_gradient_penalty(side, first, second, x, t):
    inner = leaf(side, "an input of a penalty", x)
    grad, = torch.autograd.grad(side.call(first, inner).float().sin().sum(), inner, create_graph=True)
    side.note("a gradient in a penalty", grad)
    return (grad.norm(dim=1) - 1).square().mean()


def chained_gradient_penalty(side, first, second, x, t):
    inner = leaf(side, "an input of a chain's penalty", x)
    middle = side.call(first, inner).float()
    loss = side.call(second, middle).float().square().mean()
    grads = torch.autograd.grad(loss, [inner, middle], create_graph=True)
    return loss + sum((10 * each).square().sum() for each in grads)


def parameter_gradient_penalty(side, first, second, x, t):
    loss = nn.functional.mse_loss(side.call(second, side.call(first, x).float()).float(), t)
    grads = torch.autograd.grad(loss, side.parameters(first), create_graph=True)
    return loss + 3 * sum(each.float().square().sum() for each in grads)


def third_order(side, first, second, x, t):
    inner = leaf(side, "an input of the third order", x)
    once, = torch.autograd.grad(side.call(first, inner).float().sin().sum(), inner, create_graph=True)
    twice, = torch.autograd.grad(once.square().sum(), [inner], create_graph=True)
    side.note("a second derivative", twice)
    return twice.square().mean()


def attribute(side, first, second, x, t):
    y = side.call(first, x).float()
    return nn.functional.mse_loss(y, t) + 2 * side.module(first).aux.float() + side.module(first).left[0].float()


def checkpointed_outside(side, first, second, x, t):
    inner = leaf(side, "an input of a checkpoint", x)
    y = checkpoint(lambda each: side.call(first, each).float() * 2, inner, use_reentrant=False)
    return nn.functional.mse_loss(checkpoint(lambda each: side.call(second, each).float(), y, use_reentrant=True), t)


def two_losses(side, first, second, x, t):
    """On one graph, which the first keeps; the second after the loss."""
    y = side.call(second, side.call(first, x).float()).float()
    again = y.square().mean()
    side.later.append(lambda: again.backward(retain_graph=True))
    side.later.append(lambda: (again * 0.5).backward())
    return nn.functional.mse_loss(side.call(first, x).float(), t)


def in_no_sync(side, first, second, x, t):
    if side.engines:
        with side.engines[first].no_sync():
            return plain(side, first, second, x, t)
    return plain(side, first, second, x, t)


def not_a_scalar(side, first, second, x, t):
    y = side.call(first, x)
    side.later.append(lambda: y.backward(t.to(y.dtype) * 0.01))
    return nn.functional.mse_loss(side.call(second, x).float(), t)


def float16_outside(side, first, second, x, t):
    """Gradients that are zero in float16 without a loss scale."""
    y = side.call(first, x).float()
    return ((y.half() * t.half()).mean().float() if side.engines else (y * t).mean()) * 1e-6


def parameter_hooks(side, first, second, x, t):
    """On parameters, before and after what autograd adds; they read and change."""
    weight, bias = side.parameters(first)[:2]

    def change(grad):
        side.note("a parameter's hook", grad)
        return grad.clamp(-0.02, 0.02) * 3

    def change_sum(parameter):
        side.note("a hook after accumulation", parameter.grad)
        parameter.grad.mul_(0.5)
        parameter.grad = parameter.grad.clamp(-0.01, 0.01)
    hooks = weight.register_hook(change), bias.register_post_accumulate_grad_hook(change_sum)
    side.later.extend(hook.remove for hook in hooks)
    return weight_penalty(side, first, second, x, t)


def caught_by_a_hook(side, first, second, x, t):
    """A tensor of the inside that comes out by a forward hook, which changes it for the inside."""
    caught = []

    def catch(module, inputs, output):
        caught.append(output.float() * 2)
        caught.append((output.float() * module.weight.float().sum()).mean())
        return output * 0.5 + (caught[0] * 0.1).to(output.dtype)
    hook = side.module(first).a.register_forward_hook(catch)
    y = side.call(first, x).float()
    hook.remove()
    return nn.functional.mse_loss(y, t) + caught[0].float().square().mean() + caught[1].float()


def past_the_outputs(side, first, second, x, t):
    """A tensor of the inside that comes out by a closure."""
    model = side.module(first)
    caught, inner = [], model.a.forward
    model.a.forward = lambda each: caught.append(inner(each)) or caught[-1]
    y = side.call(first, x).float()
    model.a.forward = inner
    return nn.functional.mse_loss(y, t) + caught[0].float().square().mean()


TERMS = (plain, chain, product, shared_output, repeated_outputs, leaf_input, cut, written_into, hooks, taken_by_grad, weight_penalty,
         weight_outside, input_gradient_penalty, chained_gradient_penalty, parameter_gradient_penalty, third_order, attribute,
         checkpointed_outside, two_losses, in_no_sync, not_a_scalar, caught_by_a_hook)
# Not beside other terms, whose backwards they would change.
ALONE = (parameter_hooks,)
# With a factor these are served where the engine knows the root.
ROOTED_TERMS = (past_the_outputs, float16_outside)
# PyTorch refuses these where a model has a checkpoint of the reentrant kind.
NOT_REENTRANT = (taken_by_grad, input_gradient_penalty, chained_gradient_penalty, parameter_gradient_penalty, third_order,
                 checkpointed_outside, caught_by_a_hook)


def run(side, terms, form, x, t):
    """terms: (term, coefficient, first, second)."""
    side.seen, side.later = [], []
    loss = sum(coefficient * term(side, first, second, x, t) for term, coefficient, first, second in terms)
    side.backward(loss, form, terms[0][2])
    for each in side.later:
        each()
    return side.seen


def copies(models):
    return [copy.deepcopy(model) for model in models]
