package statustest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
	"github.com/kubeletkit/kubeletkit/status/statustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestManager(t *testing.T) {
	statustest.Suite(t, statustest.Factory{New: func(t *testing.T, opts status.Options) status.Manager {
		m, err := status.New(opts)
		require.NoError(t, err)
		return m
	}})
}

func TestFake(t *testing.T) {
	statustest.Suite(t, statustest.Factory{KeepsOnly: true, New: func(*testing.T, status.Options) status.Manager {
		return fake.NewManager()
	}})
}
