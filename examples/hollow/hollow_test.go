package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAgentsAreSmall(t *testing.T) {
	var out bytes.Buffer
	profile := filepath.Join(t.TempDir(), "heap")
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, run(t.Context(), &out, settings{agents: 20, pods: 10, settle: 5 * time.Second,
			heapProfile: profile}))
	})
	assert.Contains(t, out.String(), "20 agents with 10 pods each: all pods running after ")
	m := regexp.MustCompile(`memory for each agent: (\d+) KiB`).FindStringSubmatch(out.String())
	require.NotNil(t, m, out.String())
	kib, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	t.Log(out.String())
	assert.Less(t, kib, 1024, "an agent with 10 pods takes less than 1 MiB")
	info, err := os.Stat(profile)
	require.NoError(t, err)
	assert.Positive(t, info.Size())
}

func TestEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out bytes.Buffer
		require.NoError(t, run(ctx, &out, settings{agents: 2, pods: 1}))
		assert.Empty(t, out.String())
	})
}

func TestMistakes(t *testing.T) {
	require.Error(t, run(t.Context(), nil, settings{agents: 1, listen: "nowhere"}))
	require.Error(t,
		run(t.Context(), &bytes.Buffer{}, settings{heapProfile: filepath.Join(t.TempDir(), "no", "where")}))
}
