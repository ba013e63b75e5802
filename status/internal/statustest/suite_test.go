package statustest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/fake"
	"github.com/kubeletkit/kubeletkit/status/internal/statustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestManager runs the suite on the default manager, with the defect of this process.
func TestManager(t *testing.T) {
	defect, broken := defects[testenv.Defect()]
	statustest.Suite(t, statustest.Factory{New: func(t *testing.T, opts status.Options) status.Manager {
		d := &defective{}
		if broken {
			defect.apply(d)
		}
		if d.deliver != nil || d.gone != nil || d.watch != nil {
			opts.Sink = &sink{opts.Sink, d}
		}
		if d.mayRun != nil {
			opts.MayRun = d.mayRun
		}
		m, err := status.New(opts)
		require.NoError(t, err)
		d.Manager = m
		return d
	}})
}

func TestTheSuiteFindsDefects(t *testing.T) {
	found := map[string]string{}
	for name, defect := range defects {
		found[name] = defect.found
	}
	testenv.FindsDefects(t, "TestManager", found, statustest.Cases(), nil)
}

func TestFake(t *testing.T) {
	statustest.Suite(t, statustest.Factory{KeepsOnly: true, New: func(*testing.T, status.Options) status.Manager {
		return fake.NewManager()
	}})
}
