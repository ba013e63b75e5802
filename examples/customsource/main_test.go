package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPodsFollowTheTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		assert.Equal(t, `pods:
  web-edge-7 web:1 Running
pods:
  db-edge-7 db:1 Running
  web-edge-7 web:2 Running
nodes/edge-7/pods/db: unknown field "spek"
pods:
  db-edge-7 db:1 Running
`, out.String())
	})
}
