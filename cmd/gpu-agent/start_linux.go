//go:build linux && cgo && glibc228

package main

import "C" // start_linux.c
