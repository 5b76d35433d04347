//go:build linux && cgo && glibc228

// A program's first instructions come from the C library that it is linked with, and call
// __libc_start_main in the version of glibc 2.34, which no longer takes the program's own
// initialiser. The link has them call the function below in its place, which calls the oldest
// version, and does what that one leaves to the program.

#if defined(__x86_64__)
__asm__(".symver start_main,__libc_start_main@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver start_main,__libc_start_main@GLIBC_2.17");
#endif

typedef int (*program)(int, char **, char **);
typedef void (*initialiser)(int, char **, char **);

extern int start_main(program, int, char **, initialiser, void (*)(void), void (*)(void), void *);
extern initialiser __init_array_start[] __attribute__((visibility("hidden")));
extern initialiser __init_array_end[] __attribute__((visibility("hidden")));

static void initialise(int argc, char **argv, char **envp) {
	for (initialiser *i = __init_array_start; i < __init_array_end; i++)
		(*i)(argc, argv, envp);
}

int __wrap___libc_start_main(program run, int argc, char **argv, initialiser init, void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
	return start_main(run, argc, argv, init ? init : initialise, fini, rtld_fini, stack_end);
}
