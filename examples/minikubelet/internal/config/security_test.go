package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The values are those of component-helpers/node/util/sysctl.
func TestKernelSettings(t *testing.T) {
	values := map[string]string{
		"/proc/sys/vm/overcommit_memory": "1\n", "/proc/sys/vm/panic_on_oom": "0\n", "/proc/sys/kernel/panic": "10\n",
		"/proc/sys/kernel/panic_on_oops": "1\n", "/proc/sys/kernel/keys/root_maxkeys": "1000000\n", "/proc/sys/kernel/keys/root_maxbytes": "25000000\n",
	}
	read := func(path string) ([]byte, error) {
		if value, ok := values[path]; ok {
			return []byte(value), nil
		}
		return nil, assert.AnError
	}
	require.Empty(t, kernelSettings(read))
	values["/proc/sys/kernel/panic"] = "0\n"
	delete(values, "/proc/sys/vm/overcommit_memory")
	errs := kernelSettings(read)
	require.Len(t, errs, 2)
	require.EqualError(t, errs[0], "sysctl kernel.panic is 0, and must be 10")
	require.ErrorIs(t, errs[1], assert.AnError)
}
