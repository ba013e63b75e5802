package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out strings.Builder
	require.NoError(t, runCommand(t.Context(), []string{"man", dir}, &out, &out))
	assert.Contains(t, out.String(), "pages are in "+dir)
	for name, parts := range map[string][]string{
		"minikubelet":            {".TH MINIKUBELET 1", `\fBminikubelet run FLAGS\fR`, ".SH PODS", `\fBminikubelet\-pods\fR(1)`, `\fB\-\-pod\-manifest\-path string\fR`, ".SH EXAMPLES"},
		"minikubelet-logs":       {`minikubelet\-logs \- print what a container has written`, `\fB\-f, \-\-follow\fR`, "NAMESPACE/POD", ".SH EXIT STATUS", ".SH SEE ALSO"},
		"minikubelet-get-pods":   {".TH MINIKUBELET\\-GET\\-PODS 1"},
		"minikubelet-validate":   {"The exit code is 1"},
		"minikubelet-completion": {"completion"},
	} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		require.NoError(t, err)
		for _, part := range parts {
			assert.Contains(t, string(page), part, name)
		}
	}
	assert.NoFileExists(t, filepath.Join(dir, "minikubelet-man.1"))
	require.ErrorContains(t, runCommand(t.Context(), []string{"man"}, &out, &out), "want a directory")
	require.Error(t, runCommand(t.Context(), []string{"man", filepath.Join(dir, "minikubelet.1")}, &out, &out))

	assert.Equal(t, `\&.b \eb \-`, roff(`.b \b -`))
	groff, err := exec.LookPath("groff")
	if err != nil || exec.CommandContext(t.Context(), groff, "-z", "-Tutf8", os.DevNull).Run() != nil {
		return // it is not here, or not whole
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	warnings, err := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-ww", "-z", "-Tutf8"},
		pages...)...).CombinedOutput()
	require.NoError(t, err)
	assert.NotContains(t, string(warnings), "error")
}
