// Airgapped is an agent of a site without a registry. The images of its pods are OCI archives in a directory, as
// "docker save", "ctr images export" or "skopeo copy … oci-archive:" write them:
//
//	archives/docker.io_library_nginx_1.29.tar   the image nginx:1.29
//
// An image that the runtime does not have is imported when a pod needs it. Nothing is pulled.
//
//	sudo go run ./examples/airgapped -archives ./archives -manifests ./manifests
//
// CRI has no call that imports an image, so the command in -import does it. The default is that of containerd.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/node/images"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "airgapped:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("airgapped", flag.ContinueOnError)
	socket := flags.String("socket", "unix:///run/containerd/containerd.sock", "CRI socket")
	manifests := flags.String("manifests", "manifests", "directory of pod manifests")
	dir := flags.String("archives", "archives", "directory of OCI archives")
	command := flags.String("import", "ctr --namespace k8s.io images import",
		"command that imports the archive whose path is appended")
	root := flags.String("root", kubeletkit.DefaultRootDir, "directory of the agent, an absolute path")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	rt, err := cri.Dial(ctx, *socket, cri.Options{Observer: runtime.Observer{Logger: log}})
	if err != nil {
		return err
	}
	defer rt.Close()
	agent, err := newAgent(rt, file.New(*manifests, file.Options{}), *root,
		&archives{dir: *dir, load: loadBy(*command)}, log)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// newAgent composes the agent.
func newAgent(rt runtime.Runtime, source podconfig.Source, rootDir string, a *archives,
	log logr.Logger) (*kubeletkit.Agent, error) {
	return kubeletkit.New(kubeletkit.Options{
		NodeName: "airgapped",
		RootDir:  rootDir,
		Runtime:  rt,
		Sources:  []podconfig.Source{source},
		Observe:  kubeletkit.Observe{Logger: log},
		Override: kubeletkit.Overrides{Images: kubeletkit.Replace[images.Manager](a)},
	})
}

// retryAfter is the time until a missing archive is looked for again.
const retryAfter = 10 * time.Second

// archives imports images from the archives of a directory.
type archives struct {
	images.Base
	dir string
	// load imports an archive into the runtime.
	load func(ctx context.Context, path string) error
	// mu lets one import run at a time.
	mu sync.Mutex
}

// Ensure implements [images.Manager]. The pull policy has no effect: the archive is the only source of an image.
func (a *archives) Ensure(ctx context.Context, req images.Request) (*runtime.Image, error) {
	name, err := podspec.ParseImageName(req.Image)
	if err != nil {
		return nil, &runtime.ImageError{Reason: runtime.ReasonInvalidImageName, Message: err.Error()}
	}
	image, err := a.ensure(ctx, name, req.Store)
	if err != nil {
		return nil, &runtime.ImageError{Reason: runtime.ReasonImagePull, Message: err.Error(), RetryAfter: retryAfter,
			Err: err}
	}
	return image, nil
}

func (a *archives) ensure(ctx context.Context, name podspec.ImageName,
	store runtime.ImageStore) (*runtime.Image, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if image, err := store.Find(ctx, name.Name); image != nil || err != nil {
		return image, err
	}
	path := filepath.Join(a.dir, strings.NewReplacer("/", "_", ":", "_", "@", "_").Replace(name.FullName)+".tar")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no archive %s", path)
	}
	if err := a.load(ctx, path); err != nil {
		return nil, err
	}
	image, err := store.Find(ctx, name.Name)
	if err == nil && image == nil {
		err = fmt.Errorf("archive %s does not have the image %s", path, name.FullName)
	}
	return image, err
}

// loadBy returns a function that imports an archive by the command.
func loadBy(command string) func(ctx context.Context, path string) error {
	return func(ctx context.Context, path string) error {
		args := append(strings.Fields(command), path)
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	}
}
