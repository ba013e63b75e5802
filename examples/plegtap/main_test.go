package main

import (
	"os"
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
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	assert.Contains(t, string(text), "pod-0 c0 ContainerStarted\npod-0 c0 ContainerDied\npod-0 c0 ContainerStarted\n")
}
