package safefile

import (
	"os"
	"strconv"
	"strings"
)

// unknownOwner returns the user ID that the kernel shows for users outside of the user
// namespace (user_namespaces(7)). It is -1 if all users are in it.
func unknownOwner() int {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || isWhole(string(ids)) {
		return -1
	}
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return -1
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(overflow)))
	if err != nil {
		return -1
	}
	return uid
}

// isWhole reports whether a map of user IDs is that of the initial user namespace: all 2³²-1
// IDs are themselves.
func isWhole(ids string) bool {
	fields := strings.Fields(ids)
	return len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295"
}
