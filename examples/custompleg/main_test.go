package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/pleg"
	"github.com/kubeletkit/kubeletkit/pleg/plegtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRestartsFollowEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out, 4*time.Second))
		assert.Regexp(t, `^[1-9]\d* lists in 4s`, out.String())
		assert.Regexp(t, `the history has [23] exits`, out.String(), "the PLEG has the options of the default")
		assert.Contains(t, out.String(), "instance 1 started 0s after the end of the one before\n")
		assert.Contains(t, out.String(), "instance 2 started 1ms after the end of the one before\n",
			"that is the back-off")
	})
}

// TestHintedConforms runs the conformance suite of generators.
func TestHintedConforms(t *testing.T) {
	plegtest.Suite(t,
		plegtest.Factory{New: func(_ *testing.T, rt *plegtest.Runtime, cache *runtime.Cache) pleg.Generator {
			return &Hinted{Generic: pleg.NewGeneric(rt, cache, pleg.Options{RelistPeriod: 10 * time.Minute}),
				Events: rt}
		}})
}
