/* Starts a Cortex-M on Arm's board MPS2, as qemu-system-arm emulates it. */
#include <stdint.h>

extern void _start(void);
extern unsigned char stack_end[];

static void reset(void) {
#ifdef __ARM_FP
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* switch the arithmetic of floats on */
    __asm volatile("dsb\n isb");
#endif
    _start();
}

/* The vector table: the end of the stack, and where to start. */
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {stack_end, (const void *)reset};
