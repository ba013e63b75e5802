package cluster

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit/cluster/internal/bounded"
)

// spaces is an API server that answers with spaces without end.
type spaces struct{}

func (spaces) RoundTrip(*http.Request) (*http.Response, error) {
	block := strings.Repeat(" ", 1<<20)
	body, to := io.Pipe()
	go func() { // ends when the body is closed
		for {
			if _, err := io.WriteString(to, block); err != nil {
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1, Body: body}, nil
}

// No client of a node reads a response without end.
func TestClientsAreBounded(t *testing.T) {
	c, err := newClients(&rest.Config{Host: "http://api", Transport: spaces{}}, Budgets{})
	require.NoError(t, err)
	for _, client := range []kubernetes.Interface{c.pods, c.objects, c.node, c.lease, c.events} {
		_, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		require.ErrorIs(t, err, bounded.ErrTooLarge)
	}
}
