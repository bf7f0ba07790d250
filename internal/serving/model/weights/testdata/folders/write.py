"""Writes the folders beside it: each has a matrix "a" of 24 outputs as a format of quantized weights keeps it, and in
want.bin the weights as float32, computed here from what the formats' descriptions say. Usage: python3 write.py

GPTQ (AutoGPTQ): qweight[in/8, out] has 8 inputs to a word, the first in the lowest bits; qzeros[groups, out/8] has 8
outputs to a word; weight = (q - (zero + 1)) * scales[group, out], without the 1 in checkpoint_format gptq_v2.
AWQ (AutoAWQ, gemm): qweight[in, out/8] has 8 outputs to a word, outputs 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on,
and so have the zeros; weight = (q - zero) * scales[group, out].
compressed-tensors, pack-quantized: weight_packed[out, in/8] has 8 inputs to a word, of signed integers plus 8;
weight_zero_point[out/8, groups] has 8 outputs, plus 8 too; weight = (q - zero) * weight_scale[out, group].
FP8: weight[out, in] in E4M3, times weight_scale, one or one of each output, or weight_scale_inv of blocks.
"""
import json, math, os, random, struct

random.seed(31)
OUT = 24


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def f16(x):
    return struct.unpack('<e', struct.pack('<e', x))[0]


def bf16_bits(x):
    return struct.unpack('<I', struct.pack('<f', x))[0] >> 16


def bf16(bits):
    return struct.unpack('<f', struct.pack('<I', bits << 16))[0]


def e4m3(b):
    sign, exponent, fraction = b >> 7, b >> 3 & 15, b & 7
    size = (8 + fraction) / 8 * 2.0 ** (exponent - 7) if exponent else fraction / 8 * 2.0**-6
    return -size if sign else size


def words(rows, cols, place, value):
    """Words of which each has 8 values: place says of which word, and in which nibble, a value is."""
    all = [[0] * cols for _ in range(rows)]
    for key, v in value.items():
        r, c, nibble = place(*key)
        assert 0 <= v < 16
        all[r][c] |= v << (4 * nibble)
    return struct.pack('<%dI' % (rows * cols), *[w for row in all for w in row])


def write(name, quantization, tensors, want):
    os.makedirs(name, exist_ok=True)
    with open(name + '/config.json', 'w') as f:
        json.dump({'quantization_config': quantization}, f)
    header, data = {}, b''
    for tensor, (dtype, shape, values) in tensors.items():
        header[tensor] = {'dtype': dtype, 'shape': shape, 'data_offsets': [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(name + '/model.safetensors', 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)
    with open(name + '/want.bin', 'wb') as f:
        f.write(struct.pack('<%df' % len(want), *want))


def integers(ins, group):
    q = {(o, k): random.randrange(16) for o in range(OUT) for k in range(ins)}
    zeros = {(g, o): random.randrange(16) for g in range(ins // group) for o in range(OUT)}
    scales = {(g, o): f16(random.uniform(0.001, 0.02)) for g in range(ins // group) for o in range(OUT)}
    return q, zeros, scales


def halves(values):
    return struct.pack('<%de' % len(values), *values)


def gptq(name, ins, group, **extra):
    q, zeros, scales = integers(ins, group)
    groups, one = ins // group, 0 if extra.get('checkpoint_format') == 'gptq_v2' else 1
    write(name, {'quant_method': 'gptq', 'bits': 4, 'group_size': group, 'desc_act': False, **extra}, {
        'a.qweight': ('I32', [ins // 8, OUT], words(ins // 8, OUT, lambda o, k: (k // 8, o, k % 8), q)),
        'a.qzeros': ('I32', [groups, OUT // 8], words(groups, OUT // 8, lambda g, o: (g, o // 8, o % 8), zeros)),
        'a.scales': ('F16', [groups, OUT], halves([scales[g, o] for g in range(groups) for o in range(OUT)])),
        'a.g_idx': ('I32', [ins], struct.pack('<%di' % ins, *[k // group for k in range(ins)])),
    }, [(q[o, k] - zeros[k // group, o] - one) * scales[k // group, o] for o in range(OUT) for k in range(ins)])


def awq(name, ins, group):
    q, zeros, scales = integers(ins, group)
    groups, order = ins // group, [0, 2, 4, 6, 1, 3, 5, 7]
    write(name, {'quant_method': 'awq', 'bits': 4, 'group_size': group, 'zero_point': True, 'version': 'gemm'}, {
        'a.qweight': ('I32', [ins, OUT // 8],
                      words(ins, OUT // 8, lambda o, k: (k, o // 8, order.index(o % 8)), q)),
        'a.qzeros': ('I32', [groups, OUT // 8],
                     words(groups, OUT // 8, lambda g, o: (g, o // 8, order.index(o % 8)), zeros)),
        'a.scales': ('F16', [groups, OUT], halves([scales[g, o] for g in range(groups) for o in range(OUT)])),
    }, [(q[o, k] - zeros[k // group, o]) * scales[k // group, o] for o in range(OUT) for k in range(ins)])


def packed(name, ins, group, symmetric):
    q, zeros, scales = integers(ins, group)
    groups = ins // group
    bits = {key: bf16_bits(v) for key, v in scales.items()}
    bits[0, 0] = bf16_bits(3e-7) # which F16 would round
    tensors = {
        'a.weight_packed': ('I32', [OUT, ins // 8], words(OUT, ins // 8, lambda o, k: (o, k // 8, k % 8), q)),
        'a.weight_scale': ('BF16', [OUT, groups],
                           struct.pack('<%dH' % (OUT * groups),
                                       *[bits[g, o] for o in range(OUT) for g in range(groups)])),
        'a.weight_shape': ('I64', [2], struct.pack('<2q', OUT, ins)),
    }
    if symmetric:
        zeros = {key: 8 for key in zeros}
    else:
        tensors['a.weight_zero_point'] = ('I32', [OUT // 8, groups], words(
            OUT // 8, groups, lambda g, o: (o // 8, g, o % 8), zeros))
    weights = {'num_bits': 4, 'type': 'int', 'symmetric': symmetric, 'strategy': 'group', 'group_size': group,
               'actorder': None}
    write(name, {'quant_method': 'compressed-tensors', 'format': 'pack-quantized',
                 'config_groups': {'group_0': {'targets': ['Linear'], 'weights': weights}}}, tensors,
          [f32((q[o, k] - zeros[k // group, o]) * bf16(bits[k // group, o])) for o in range(OUT) for k in range(ins)])


def fp8(name, ins, quantization, scale_name, dtype, shape, scales, scale):
    b = [random.choice([v for v in range(256) if v & 127 != 127]) for _ in range(OUT * ins)]
    pack = struct.pack('<%dH' % len(scales), *[bf16_bits(s) for s in scales]) if dtype == 'BF16' else struct.pack(
        '<%df' % len(scales), *scales)
    write(name, quantization, {
        'a.weight': ('F8_E4M3', [OUT, ins], bytes(b)), scale_name: (dtype, shape, pack),
        'a.input_scale': ('F32', [], struct.pack('<f', 1)),
    }, [f32(e4m3(b[o * ins + k]) * scale(o, k)) for o in range(OUT) for k in range(ins)])


gptq('gptq', 128, 64)
gptq('gptq_v2', 96, 32, checkpoint_format='gptq_v2')
awq('awq', 128, 64)
packed('packed', 128, 64, True)
packed('packed_zeros', 64, 32, False)
one = f32(0.0123)
fp8('fp8', 64, {'quant_method': 'fp8', 'activation_scheme': 'static'}, 'a.weight_scale', 'F32', [], [one],
    lambda o, k: one)
each = [bf16(bf16_bits(random.uniform(1e-4, 1e-2))) for _ in range(OUT)]
weights = {'num_bits': 8, 'type': 'float', 'symmetric': True, 'strategy': 'channel'}
fp8('fp8_channels', 64, {'quant_method': 'compressed-tensors', 'format': 'float-quantized',
                         'config_groups': {'group_0': {'targets': ['Linear'], 'weights': weights}}},
    'a.weight_scale', 'BF16', [OUT, 1], each, lambda o, k: each[o])
blocks = [f32(random.uniform(1e-4, 1e-2)) for _ in range(2 * 3)]
fp8('fp8_blocks', 160, {'quant_method': 'fp8', 'fmt': 'e4m3', 'weight_block_size': [16, 64]},
    'a.weight_scale_inv', 'F32', [2, 3], blocks, lambda o, k: blocks[o // 16 * 3 + k // 64])
