package supervise

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadReady(t *testing.T) {
	const long = time.Hour
	for _, c := range []struct {
		name, said string
		closed     bool
		timeout    time.Duration
		want       error
	}{
		{"all is well", greeting + `{"state":{"command":{"pid":7}}}`, true, long, nil},
		{"the program ends without a greeting", "", true, long, errNotSupervisor},
		{"the program goes on without a greeting", "", false, time.Millisecond, errNotSupervisor},
		{"the supervisor dies", greeting, true, long, errDied},
		{"the supervisor dies while it writes", greeting + `{"state":{`, true, long, errDied},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			defer w.Close()
			_, err = w.WriteString(c.said)
			require.NoError(t, err)
			if c.closed {
				require.NoError(t, w.Close())
			}
			said, err := readReady(r, c.timeout)
			require.ErrorIs(t, err, c.want)
			if c.want == nil {
				assert.Equal(t, 7, said.State.Command.PID)
			}
		})
	}
}
