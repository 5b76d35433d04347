/* bcryptprimitives.dll for Wine before version 9: the one function of it that Go's
   runtime needs, by way of the one in advapi32 that does the same. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID, ULONG); /* RtlGenRandom */

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size)
{
    while (size > 0) {
        ULONG n = size > 0x10000000 ? 0x10000000 : (ULONG)size;
        if (!SystemFunction036(data, n)) return FALSE;
        data += n;
        size -= n;
    }
    return TRUE;
}
