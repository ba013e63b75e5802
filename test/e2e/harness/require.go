package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// cniDirs are where distributions put the CNI plugins.
var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}

// Skip skips the test for the reason, or fails it under KUBELETKIT_E2E_STRICT=1:
// where everything was to be installed, a skip would hide that it is not.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("KUBELETKIT_E2E_STRICT") == "1" {
		t.Fatalf("must not skip here: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Need skips the test unless it runs as root on Linux with the named programs.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		Skip(t, "needs root on Linux")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Skip(t, "needs %s: %v", p, err)
		}
	}
}

// cniDir returns the directory of the CNI plugins.
func cniDir(t testing.TB) string {
	t.Helper()
	for _, dir := range cniDirs {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir
		}
	}
	Skip(t, "needs the CNI plugins in one of %v", cniDirs)
	return ""
}

// build runs a command that leaves programs in a directory, once for each
// process, and returns the directory.
type build struct {
	once sync.Once
	dir  string
	err  error
	out  []byte
}

var minikubelet, hollow build

// builds are those of test/tools/build, each a *build, by the names of the tools.
var builds sync.Map

// toolDir returns the directory with what test/tools/build has built.
func toolDir(t testing.TB, tool string) string {
	t.Helper()
	b, _ := builds.LoadOrStore(tool, &build{})
	return b.(*build).get(t, tool, func() (string, *exec.Cmd) {
		return "", exec.Command("bash", filepath.Join(repoRoot(), "test/tools/build"), tool)
	})
}

func (b *build) get(t testing.TB, what string, run func() (string, *exec.Cmd)) string {
	t.Helper()
	b.once.Do(func() {
		dir, cmd := run()
		b.dir = dir
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		b.err = cmd.Run()
		b.out = []byte(stderr.String())
		if b.dir == "" {
			b.dir = strings.TrimSpace(stdout.String())
		}
	})
	if b.err != nil {
		t.Fatalf("building %s: %v\n%s", what, b.err, b.out)
	}
	return b.dir
}

// KubernetesBinary returns a program of Kubernetes, etcd, coredns, csi-attacher, the node tests of Kubernetes with the
// programs of their images and ginkgo, or the program on kubelet's code, built from the modules in test/tools. A name
// that ends in a version, as kubelet-1.36, is the program of that version.
func KubernetesBinary(t testing.TB, name string) string {
	program, _, _ := strings.Cut(name, "-1.")
	return filepath.Join(toolDir(t, name), program)
}

// ToolBinary returns a program of a tool that test/tools/build gets.
func ToolBinary(t testing.TB, tool, program string) string {
	return filepath.Join(toolDir(t, tool), program)
}

// OldKubernetes returns the version of the programs of a [ControlPlane], as KUBELETKIT_E2E_KUBERNETES is set, such as
// "1.36", or "" for those that the module test/tools/kubelet names.
func OldKubernetes() string { return os.Getenv("KUBELETKIT_E2E_KUBERNETES") }

// controlPlaneBinary returns a program of a [ControlPlane].
func controlPlaneBinary(t testing.TB, name string) string {
	if version := OldKubernetes(); version != "" {
		name += "-" + version
	}
	return KubernetesBinary(t, name)
}

// ReferenceBinary returns the program that prints what the code of kubelet makes of its input, see
// test/tools/kubelet/reference. The tool is reference or reference-1.36.
func ReferenceBinary(t testing.TB, tool string) string {
	return filepath.Join(filepath.Dir(KubernetesBinary(t, tool)), "reference")
}

// KubeletBinary returns a kubelet.
func KubeletBinary(t testing.TB) string {
	return KubernetesBinary(t, "kubelet")
}

// MinikubeletBinary returns minikubelet, built from the tree the tests stand
// in; with KUBELETKIT_E2E_AGENT set it is that program instead.
func MinikubeletBinary(t testing.TB) string {
	if bin := os.Getenv("KUBELETKIT_E2E_AGENT"); bin != "" {
		return bin
	}
	return minikubelet.example(t, "minikubelet")
}

// HollowBinary returns hollow, built from the tree the tests stand in; with
// KUBELETKIT_E2E_HOLLOW set it is that program instead.
func HollowBinary(t testing.TB) string {
	if bin := os.Getenv("KUBELETKIT_E2E_HOLLOW"); bin != "" {
		return bin
	}
	return hollow.example(t, "hollow")
}

// example builds a program of the directory examples.
func (b *build) example(t testing.TB, name string) string {
	return filepath.Join(b.get(t, name, func() (string, *exec.Cmd) {
		dir, err := os.MkdirTemp("", "kkbin")
		if err != nil {
			return "", exec.Command("false")
		}
		if err := os.Chmod(dir, 0o755); err != nil { // also for agents that do not run as root
			return "", exec.Command("false")
		}
		args := []string{"build", "-tags", "grpcnotrace", "-o", dir + "/"}
		if os.Getenv("KUBELETKIT_E2E_RACE") == "1" {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, "./examples/"+name)...)
		cmd.Dir = repoRoot()
		return dir, cmd
	}), name)
}

// RemoveBuilt removes what was built for this process only.
func RemoveBuilt() {
	for _, b := range []*build{&minikubelet, &hollow, &csiDriver} {
		if b.dir != "" {
			os.RemoveAll(b.dir)
		}
	}
}

// repoRoot is the root of the repository, found from this file.
func repoRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(file))))
}
