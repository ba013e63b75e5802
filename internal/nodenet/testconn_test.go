package nodenet_test

import (
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// The peer reads until it has written more than the number of bytes. Then a write waits until the
// connection is closed.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw, peer := net.Pipe()
		conn := nodenet.Stuck(raw, 4)
		go func() { _, _ = io.Copy(io.Discard, peer) }()

		answer := func(text string) {
			go func() { _, _ = io.WriteString(peer, text) }()
			got := make([]byte, len(text))
			_, err := io.ReadFull(conn, got)
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
		}
		answer("four")
		n, err := conn.Write([]byte("read"))
		require.NoError(t, err)
		assert.Equal(t, 4, n)

		answer("5")
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Write([]byte("not read"))
			ended <- err
		}()
		synctest.Wait()
		assert.Empty(t, ended, "it waits")
		require.NoError(t, conn.Close())
		require.ErrorIs(t, <-ended, net.ErrClosed)
		require.NoError(t, conn.Close(), "again")
		require.NoError(t, peer.Close())
	})
}
