package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// manifestFile is a file and its last valid content.
type manifestFile struct {
	// info is the file as it was read last. If trusted is set, an unchanged info means
	// unchanged content. It is not set for a file that was written to shortly before it
	// was read: time stamps are as coarse as the kernel's clock, so the next write may
	// leave the same one.
	info    os.FileInfo
	trusted bool
	// sum is the checksum of the content that was parsed last. It is valid if parsed is
	// set.
	sum    [sha256.Size]byte
	parsed bool
	// err is what is wrong with that content. It is nil if the content is valid.
	err error
	// warning is what is ignored of valid content. It is nil if nothing is.
	warning error
	// pods and objects are those of the last valid content. They are valid if good is
	// set.
	good    bool
	pods    []*v1.Pod
	objects []metav1.Object
	// awayUntil is the time until which the pods are withdrawn, because the file was deleted and is
	// there again; zero if they are not.
	awayUntil time.Time
	// exposed is set if users other than the owner can read secrets in the file.
	exposed bool
}

// read reads the file, and parses it if its content has changed. After an error the
// manifestFile is as it was. read only reads the state. parsing limits how many files are parsed at a time.
func (m *manifestFile) read(ctx context.Context, s *state, path string, parsing chan struct{}) error {
	data, info, err := readFile(ctx, s.reader, path)
	if err != nil {
		return err
	}
	parsing <- struct{}{}
	defer func() { <-parsing }()
	if sum := sha256.Sum256(data); !m.parsed || sum != m.sum {
		m.parse(ctx, s, path, data, info)
		m.sum, m.parsed = sum, ctx.Err() == nil
	}
	m.info, m.trusted = info, false // until assess has checked the age
	return nil
}

// parse replaces the pods and objects by those of the content, if it is valid.
func (m *manifestFile) parse(ctx context.Context, s *state, path string, data []byte, info os.FileInfo) {
	opts := manifest.Options{
		UID: func(pod *v1.Pod, hash string) types.UID {
			return s.sink.StaticUID(ctx, podconfig.StaticPod{Pod: pod, Manifest: hash, Modified: info.ModTime()})
		},
		NodeName: s.node, Source: manifest.SourceFile, Origin: path,
		Kinds: s.kinds(),
		Allow: s.opts.Allow, KubeletVersion: s.opts.KubeletVersion,
	}
	var ignored []error
	if s.opts.AsKubelet {
		opts.Warn = func(err error) { ignored = append(ignored, err) }
	}
	pods, found, err := manifest.LoadAll(data, opts)
	if err == nil {
		err = mayReplace(m.objects, found)
	}
	if ctx.Err() != nil {
		return // the UIDs mean nothing
	}
	m.err, m.warning = err, nil
	if err == nil && len(ignored) > 0 {
		m.warning = &manifest.Warning{Err: text.JoinErrors(ignored)}
	}
	if err == nil {
		m.pods, m.objects, m.good = pods, found, true
	}
}

// kinds returns the kinds that the files may hold.
func (s *state) kinds() []string {
	kinds := []string{manifest.PodKind, objects.SecretKind, objects.ConfigMapKind}
	switch {
	case s.store == nil:
		return kinds[:1]
	case s.onlyObjects:
		return kinds[1:]
	default:
		return kinds
	}
}

// ReadFile returns the content of a manifest file as a [Source] reads it: from a regular file, to which the path may be
// a symbolic link, of at most [manifest.MaxSize] bytes, within 5 seconds. A file system that does not answer is an
// error.
func ReadFile(ctx context.Context, path string) ([]byte, error) {
	data, _, err := readFile(ctx, newReader(), path)
	return data, err
}

// ReadDir is [os.ReadDir] within 5 seconds.
func ReadDir(ctx context.Context, path string) ([]os.DirEntry, error) {
	return newReader().ReadDir(ctx, path)
}

func newReader() *safefile.Reader { return &safefile.Reader{Timeout: readTimeout} }

// readFile returns the content of a regular file, and the file as it was opened.
func readFile(ctx context.Context, r *safefile.Reader, path string) ([]byte, os.FileInfo, error) {
	data, info, err := r.ReadFileInfo(ctx, path, manifest.MaxSize)
	if errors.Is(err, safefile.ErrTooLarge) {
		err = manifest.ErrTooLarge
	}
	return data, info, err
}
