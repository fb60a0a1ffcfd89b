"""lockstep's dropout masks, written once more with numpy alone (src/base/dropout_mask.h says what they are)."""
import numpy as np
import torch

EMBEDDING, ATTENTION, PROJECTION, FEED_FORWARD = 1, 2, 3, 4
PURPOSE = 3
TAG = 0x4c4f434b


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., 2011) of four arrays of uint32 words, which are broadcast."""
    c = [np.asarray(word, np.uint64) for word in counter]
    low = np.uint64(0xffffffff)
    k = [int(word) for word in key]
    for _ in range(10):
        p = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p[1] >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), p[1] & low,
             (p[0] >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p[0] & low]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return np.broadcast_arrays(*c)


class Dropout:
    """What a step of a training multiplies activations by: 0 or 1 / (1 - probability)."""

    def __init__(self, probability, seed, step):
        self.probability, self.seed, self.step = probability, seed, step

    def factors(self, site, layer, head, samples, tokens, elements):
        """[samples x tokens x elements], all counted from the first of the global batch."""
        words = philox([layer, head, PURPOSE | site << 16, TAG], [self.seed & 0xffffffff, self.seed >> 32])
        counter = [self.step, np.arange(samples)[:, None, None], np.arange(tokens)[:, None], np.arange(-(-elements // 4))]
        drawn = np.stack(philox(counter, [int(words[0]), int(words[1])]), -1).reshape(samples, tokens, -1)[..., :elements]
        kept = drawn >= np.uint64(round(self.probability * 2 ** 32))
        return torch.tensor(kept / (1 - self.probability))

    def rows(self, site, layer, x):
        """Of features x [samples x tokens x features]."""
        return x * self.factors(site, layer, 0, *x.shape)

    def heads(self, layer, x):
        """Of probabilities x [samples x heads x queries x keys]."""
        masks = [self.factors(ATTENTION, layer, head, x.shape[0], *x.shape[2:]) for head in range(x.shape[1])]
        return x * torch.stack(masks, 1)


class NoDropout:
    def rows(self, site, layer, x):
        return x

    def heads(self, layer, x):
        return x
