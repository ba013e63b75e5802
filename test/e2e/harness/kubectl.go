package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }

// Kubectl runs kubectl as an administrator, and returns its output.
func (p *ControlPlane) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := p.TryKubectl(t, "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Apply applies manifests with kubectl.
func (p *ControlPlane) Apply(t testing.TB, manifests string, args ...string) {
	t.Helper()
	if _, err := p.TryKubectl(t, manifests, append([]string{"apply", "-f", "-"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// TryKubectl runs kubectl with an input. Its error has what kubectl wrote to stderr.
func (p *ControlPlane) TryKubectl(t testing.TB, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(KubernetesBinary(t, "kubectl"), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.admin, "HOME="+p.dir)
	if err := p.net.Do(cmd.Start); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
