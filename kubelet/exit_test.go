package kubelet

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/client"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		err         error
		interrupted bool
		want        int
		errOut      string
	}{
		{nil, false, 0, ""},
		{errors.New("broken\x1b"), false, 1, "minikubelet: broken\\x1b\n"},
		{fmt.Errorf("flags: %w", &config.UsageError{Err: errors.New("no such flag")}), false, 2, "minikubelet: flags: no such flag\n"},
		{client.ExitCode(42), false, 42, ""},
		{&client.Failure{Code: 125, Err: errors.New("no such pod")}, false, 125, "minikubelet: no such pod\n"},
		{nil, true, 130, ""},
		{errors.New("interrupted"), true, 130, "minikubelet: interrupted\n"},
	} {
		var errOut strings.Builder
		assert.Equal(t, tt.want, exitCode(program, tt.err, tt.interrupted, &errOut))
		assert.Equal(t, tt.errOut, errOut.String())
	}
}
