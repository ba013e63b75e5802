package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime/process"
)

func TestMain(m *testing.M) {
	process.Init()
	goleak.VerifyTestMain(m)
}

func TestTheSinkReceivesThePodOfTheSource(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp") // short, for the sockets in it
	terminal := os.Stdout
	out, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer out.Close()
	os.Stdout = out
	err = run(t.Context())
	os.Stdout = terminal
	require.NoError(t, err)
	text, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	assert.Equal(t, "job-edge-7 Pending", lines[0])
	assert.Equal(t, "job-edge-7 Succeeded", lines[len(lines)-1])
}
