package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheTapReceivesEvents(t *testing.T) {
	terminal := os.Stdout
	out, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer out.Close()
	os.Stdout = out
	synctest.Test(t, func(t *testing.T) { err = run(t.Context()) })
	os.Stdout = terminal
	require.NoError(t, err)
	data, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	text := strings.ReplaceAll(string(data), "pod-0  SandboxStarted\n", "") // comes before the container or behind it
	assert.Contains(t, text, "pod-0 c0 ContainerStarted\npod-0 c0 ContainerDied\npod-0 c0 ContainerStarted\n")
}
