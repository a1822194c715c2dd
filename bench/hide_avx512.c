// Hides AVX-512 and AMX from a program and all that it starts, so that a machine that has them
// measures what one with AVX2 alone would run, ours and the peers' alike. Linux on x86-64, where
// the CPU lets CPUID fault ("cpuid_fault" in /proc/cpuinfo).
//
//     cc -O1 -shared -fPIC bench/hide_avx512.c -o build/hide_avx512.so
//     LD_PRELOAD=$PWD/build/hide_avx512.so bench/targets_cpu.py --convoy build/release/bin/convoy
//
// CPUID then raises SIGSEGV; the handler executes it, clears bits of its answer (Intel 64 SDM,
// volume 2A, CPUID) and goes on behind it. glibc has chosen its memcpy by then.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static struct sigaction before;

static int let_cpuid(unsigned long run) {
  return syscall(SYS_arch_prctl, ARCH_SET_CPUID, run) == 0;
}

static void on_fault(int signal, siginfo_t* info, void* context) {
  greg_t* at = ((ucontext_t*)context)->uc_mcontext.gregs;
  const uint8_t* code = (const uint8_t*)at[REG_RIP];
  if (info->si_code != SI_KERNEL || code[0] != 0x0F || code[1] != 0xA2) {
    sigaction(signal, &before, NULL);  // a fault of the program's own comes again
    if (info->si_code <= 0) raise(signal);
    return;
  }
  const uint32_t leaf = (uint32_t)at[REG_RAX], part = (uint32_t)at[REG_RCX];
  uint32_t a, b, c, d;
  let_cpuid(1);
  __cpuid_count(leaf, part, a, b, c, d);
  let_cpuid(0);
  if (leaf == 7 && part == 0) {
    b &= ~0xDC230000u;  // AVX512F, DQ, IFMA, PF, ER, CD, BW, VL
    c &= ~0x00005842u;  // VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    d &= ~0x03C0010Cu;  // 4VNNIW, 4FMAPS, VP2INTERSECT, AMX_BF16, FP16, AMX_TILE, AMX_INT8
  } else if (leaf == 7 && part == 1) {
    a &= ~0x00200030u;  // AVX_VNNI, AVX512_BF16, AMX_FP16
    d &= ~0x00080100u;  // AMX_COMPLEX, AVX10
  } else if (leaf == 0x24) {
    a = b = c = d = 0;  // AVX10
  }
  at[REG_RAX] = a, at[REG_RBX] = b, at[REG_RCX] = c, at[REG_RDX] = d;
  at[REG_RIP] += 2;
}

__attribute__((constructor(101))) static void hide(void) {
  struct sigaction action = {.sa_sigaction = on_fault,
                             .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
  if (sigaction(SIGSEGV, &action, &before) == 0 && let_cpuid(0)) return;
  fputs("hide_avx512: this CPU or kernel lets no CPUID fault; nothing can be hidden\n", stderr);
  exit(2);
}
