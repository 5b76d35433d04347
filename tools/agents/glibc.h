/* Has C ask for the oldest version of each function that glibc moved or gave a new version
 * after 2.28, so that what is built on a newer system starts on RHEL 8, Ubuntu 20.04 and
 * Debian 11. What each does is the same: glibc 2.32 and 2.34 only made them part of libc.so.6,
 * from libdl and libpthread, which are linked for the older ones. */
#if !defined(__ASSEMBLER__) && defined(__linux__)
#if defined(__x86_64__)
#define GPUFLEET_OLDEST "GLIBC_2.2.5"
#define GPUFLEET_DLINFO "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define GPUFLEET_OLDEST "GLIBC_2.17"
#define GPUFLEET_DLINFO "GLIBC_2.17"
#endif
#ifdef GPUFLEET_OLDEST
__asm__(".symver dlopen,dlopen@" GPUFLEET_OLDEST);
__asm__(".symver dlclose,dlclose@" GPUFLEET_OLDEST);
__asm__(".symver dlsym,dlsym@" GPUFLEET_OLDEST);
__asm__(".symver dlerror,dlerror@" GPUFLEET_OLDEST);
__asm__(".symver dlinfo,dlinfo@" GPUFLEET_DLINFO);
__asm__(".symver pthread_attr_getstack,pthread_attr_getstack@" GPUFLEET_OLDEST);
__asm__(".symver pthread_attr_getstacksize,pthread_attr_getstacksize@" GPUFLEET_OLDEST);
__asm__(".symver pthread_attr_setstacksize,pthread_attr_setstacksize@" GPUFLEET_OLDEST);
__asm__(".symver pthread_create,pthread_create@" GPUFLEET_OLDEST);
__asm__(".symver pthread_detach,pthread_detach@" GPUFLEET_OLDEST);
__asm__(".symver pthread_getattr_np,pthread_getattr_np@" GPUFLEET_OLDEST);
__asm__(".symver pthread_key_create,pthread_key_create@" GPUFLEET_OLDEST);
__asm__(".symver pthread_setspecific,pthread_setspecific@" GPUFLEET_OLDEST);
__asm__(".symver pthread_sigmask,pthread_sigmask@" GPUFLEET_OLDEST);
#endif
#endif
