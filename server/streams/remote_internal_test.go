package streams

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ended is the connection to a server that has closed it. What it has sent can still be read.
type ended struct{ io.Reader }

func (ended) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
func (ended) CloseWrite() error         { return errors.New("not connected") }
func (ended) Close() error              { return nil }

// A client that sends something after the end of its command, such as a ping, does not end the session
// before it has received the rest.
func TestInputAfterTheEnd(t *testing.T) {
	resp := &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Body: ended{}}
	require.NoError(t, upgradeOrRefusal(resp))
	to, ok := resp.Body.(io.Writer)
	require.True(t, ok)
	n, err := to.Write([]byte("ping"))
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	half, ok := resp.Body.(interface{ CloseWrite() error })
	require.True(t, ok)
	assert.NoError(t, half.CloseWrite())
}
