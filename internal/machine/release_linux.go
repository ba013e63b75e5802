package machine

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseProgram unmaps the pages of the program that are not written to. It does nothing if /proc cannot be read.
func ReleaseProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err == nil && rights[1] == '-' &&
			strings.HasSuffix(line, " "+program+"\n") {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}
