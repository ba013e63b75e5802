package client

import (
	gobytes "bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inputs returns inputs of all kinds by their names. Only that of the name "terminal" is one.
func inputs(t *testing.T) map[string]io.Reader {
	t.Helper()
	all := map[string]io.Reader{"none": nil, "reader": strings.NewReader("word\n")}
	open := func(name, path string, flags int) *os.File {
		f, err := os.OpenFile(path, flags, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		all[name] = f
		return f
	}
	open("null", os.DevNull, os.O_RDONLY)
	require.NoError(t, open("closed", os.DevNull, os.O_RDONLY).Close())
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("word\n"), 0o600))
	open("file", path, os.O_RDONLY)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	all["pipe"] = r
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrPermission) {
		return all // this user may not open terminals
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	open("terminal", fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY)
	return all
}

// A terminal is requested only with both flags and an input that is one, as with kubectl. Its message is
// printed if the input is none.
func TestStreamsOfFlags(t *testing.T) {
	for name, in := range inputs(t) {
		for _, stdin := range []bool{false, true} {
			for _, tty := range []bool{false, true} {
				for _, quiet := range []bool{false, true} {
					var out, errOut gobytes.Buffer
					c := &call{Env: Env{In: in, Out: &out, Err: &errOut}, stdin: stdin, tty: tty, quiet: quiet}
					s := c.streamsOf(c.tty)
					about := fmt.Sprintf("%s, -i=%t -t=%t -q=%t", name, stdin, tty, quiet)
					assert.Equal(t, stdin && tty && name == "terminal", s.tty, about)
					assert.Equal(t, stdin && in != nil, s.in != nil, about)
					assert.NotNil(t, s.out, about)
					assert.NotNil(t, s.err, about)
					said := ""
					if stdin && tty && name != "terminal" && !quiet {
						said = "Unable to use a TTY - input is not a terminal or the right kind of file\n"
					}
					assert.Equal(t, said, errOut.String(), about)
				}
			}
		}
	}
}
