package client

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
)

// fileSpec is one of the two places of a copy.
type fileSpec struct {
	namespace, pod string // "" for a file of this machine
	path           string
}

// parseFileSpec parses [[NAMESPACE/]POD:]PATH, as kubectl.
func parseFileSpec(arg string) (fileSpec, error) {
	before, after, remote := strings.Cut(arg, ":")
	if !remote {
		return fileSpec{path: arg}, nil
	}
	s := fileSpec{pod: before, path: after}
	if namespace, pod, ok := strings.Cut(before, "/"); ok {
		s.namespace, s.pod = namespace, pod
		if namespace == "" {
			s.pod = ""
		}
	}
	if s.pod == "" || strings.Contains(s.pod, "/") || s.path == "" {
		return s, fmt.Errorf("%q: want [[NAMESPACE/]POD:]PATH", arg)
	}
	return s, nil
}

// cpCommand is the command cp.
func cpCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "copy files to a container or from one", GroupID: groupContainers,
		Long: "One of the two is a path of this machine, the other one is [NAMESPACE/]POD:PATH. A directory is " +
			"copied with all that is in it. " +
			"The container needs the program tar. Links in a container are not copied.\n\n" + podHelp,
		Example: `  minikubelet cp config.yaml web:/etc/app
  minikubelet cp web:/var/log/app logs`,
	}, (*call).cp, (*call).namespaceFlag, (*call).containerFlag, (*call).copyFlags)
}

func (c *call) copyFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.noPreserve, "no-preserve", false, "do not keep owner and permissions in the container")
}

// cp copies files to a container or from one, with the program tar of the container.
func (c *call) cp(ctx context.Context) error {
	if len(c.args) != 2 {
		return c.misused("want a source and a destination")
	}
	c.Err = &sharedWriter{w: c.Err} // of tar in the container and of this process
	from, err := parseFileSpec(c.args[0])
	if err != nil {
		return c.misused(err.Error())
	}
	to, err := parseFileSpec(c.args[1])
	if err != nil {
		return c.misused(err.Error())
	}
	remote := to
	switch {
	case from.pod != "" && to.pod != "":
		return c.misused("one of source and destination must be a file of this machine")
	case from.pod == "" && to.pod == "":
		return c.misused("one of source and destination must be a file of a pod, as in POD:PATH")
	case from.path == "" || to.path == "":
		return c.misused("the path of a file is empty")
	case from.pod != "":
		remote = from
	}
	if remote.namespace != "" {
		c.namespace = remote.namespace
	}
	pod, container, err := c.target(ctx, remote.pod, false)
	if err != nil {
		return err
	}
	if from.pod != "" {
		err = c.copyFrom(ctx, pod, container, from.path, to.path)
	} else {
		err = c.copyTo(ctx, pod, container, from.path, to.path)
	}
	if code := ExitCode(0); errors.As(err, &code) && code != Interrupted {
		err = fmt.Errorf("tar in container %q ended with exit code %d", container, int(code))
	} else if err != nil && execCode(err.Error()) == 127 {
		err = fmt.Errorf("%w; the container needs the program tar", err)
	}
	return err
}

// sharedWriter is a writer that several goroutines use.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// copyTo copies a file or directory of this machine to a container.
func (c *call) copyTo(ctx context.Context, pod *v1.Pod, container, local, remote string) error {
	if _, err := os.Lstat(local); err != nil {
		return err
	}
	// As kubectl: into a directory, if that exists.
	if c.client.stream(ctx, PathOf("exec", pod, container), map[string][]string{"command": {"test", "-d", remote}},
		streams{out: io.Discard, err: io.Discard}) == nil {
		absolute, err := filepath.Abs(local)
		if err != nil {
			return err
		}
		remote = path.Join(remote, filepath.Base(absolute))
	}
	remote = path.Clean(remote)
	r, w := io.Pipe()
	packed := make(chan error, 1) // one value, of the one goroutine
	go func() {
		err := pack(w, local, path.Base(remote))
		_ = w.CloseWithError(err)
		packed <- err
	}()
	cmd := []string{"tar", "-xmf", "-", "-C", path.Dir(remote)}
	if c.noPreserve {
		cmd = []string{"tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-", "-C", path.Dir(remote)}
	}
	err := c.run(ctx, pod, container, r, c.Out, cmd...)
	_ = r.CloseWithError(errStopped)
	if perr := <-packed; perr != nil && !errors.Is(perr, errStopped) {
		return perr
	}
	return err
}

// errStopped means that the archive is not read any more.
var errStopped = errors.New("the copy has ended")

// pack writes an archive of a file or a directory, which has the name in the archive.
func pack(w io.Writer, local, name string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(local, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("%s is neither a file nor a directory nor a link", file)
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(local, file)
		if err != nil {
			return err
		}
		header.Name = path.Join(name, filepath.ToSlash(rel))
		if info.IsDir() {
			header.Name += "/"
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(archive, f)
		return err
	})
	return errors.Join(err, archive.Close())
}

// copyFrom copies a file or directory of a container to this machine.
func (c *call) copyFrom(ctx context.Context, pod *v1.Pod, container, remote, local string) error {
	remote = path.Clean(remote)
	dir, base := path.Split(remote)
	if base == ".." || base == "." || base == "" {
		dir, base = remote, "."
	}
	if dir == "" {
		dir = "."
	}
	if info, err := os.Stat(local); err == nil && info.IsDir() && base != "." {
		local = filepath.Join(local, base) // into a directory, if that exists
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	unpacked := make(chan error, 1) // one value, of the one goroutine
	go func() {
		err := c.unpack(r, base, local)
		if err != nil {
			cancel() // the container may send without end
		}
		_ = r.CloseWithError(errStopped)
		unpacked <- err
	}()
	err := c.run(ctx, pod, container, nil, lossyWriter{w}, "tar", "cf", "-", "-C", dir, "./"+base)
	_ = w.CloseWithError(err)
	if uerr := <-unpacked; uerr != nil && (err == nil || !errors.Is(uerr, err)) {
		return uerr
	}
	return err
}

// lossyWriter drops what its pipe does not take any more, such as what GNU tar pads an archive with.
// It returns no errors, because client-go logs those of a writer.
type lossyWriter struct{ pipe *io.PipeWriter }

func (w lossyWriter) Write(b []byte) (int, error) {
	_, _ = w.pipe.Write(b)
	return len(b), nil
}

// destination is the place of a copy from a container: a file, or a directory.
type destination struct {
	name   string   // in parent
	parent *os.Root // where a file is made
	dir    *os.Root // nil until it is a directory; links in it are not followed out of it
}

// newDestination opens the directory in which the copy of base is made. If base is ".", local
// itself may be that directory.
func newDestination(local, base string) (*destination, error) {
	local, err := filepath.Abs(local)
	if err != nil {
		return nil, err
	}
	parent, name := filepath.Split(local)
	d := &destination{name: name}
	if d.parent, err = os.OpenRoot(parent); err != nil {
		return nil, err
	}
	if info, err := os.Stat(local); base != "." || err != nil || !info.IsDir() {
		return d, nil
	}
	if d.dir, err = os.OpenRoot(local); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// makeDir makes the destination a directory, if it is none yet.
func (d *destination) makeDir() (err error) {
	if d.dir != nil {
		return nil
	}
	if err := d.parent.Mkdir(d.name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d.dir, err = d.parent.OpenRoot(d.name)
	return err
}

func (d *destination) close() {
	_ = d.parent.Close()
	if d.dir != nil {
		_ = d.dir.Close()
	}
}

// unpack extracts an archive of the file or directory base to local. The archive comes from a
// container, which may not be trusted: nothing is written outside of local, also not through
// links, and links are left out, as in kubectl.
func (c *call) unpack(r io.Reader, base, local string) error {
	to, err := newDestination(local, base)
	if err != nil {
		return err
	}
	defer to.close()
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.extract(to, archive, header, base); err != nil {
			return fmt.Errorf("%q in the archive of the container: %w", header.Name, err)
		}
	}
}

// errEscape means that an archive has a file at a place where it may have none.
var errEscape = errors.New("it is outside of what was copied; the copy ends here")

// extract writes one entry of an archive: base becomes the destination.
func (c *call) extract(to *destination, content io.Reader, header *tar.Header, base string) error {
	if slices.Contains(strings.Split(header.Name, "/"), "..") {
		return errEscape
	}
	entry := path.Clean(header.Name)
	rest := entry
	if base != "." {
		var below bool
		if rest, below = strings.CutPrefix(entry, base); !below || rest != "" && rest[0] != '/' {
			return errEscape
		}
		rest = strings.TrimPrefix(rest, "/")
	}
	if !filepath.IsLocal(filepath.FromSlash(entry)) {
		return errEscape
	}
	file := filepath.FromSlash(path.Clean(rest)) // "." is the destination itself
	shown := terminal.Escape(filepath.Join(to.name, file))
	info := header.FileInfo()
	switch {
	case info.IsDir():
		if err := to.makeDir(); err != nil {
			return err
		}
		return to.dir.MkdirAll(file, 0o755)
	case header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink:
		fmt.Fprintf(c.Err, "warning: skipping link: %q -> %q\n", shown, terminal.Escape(header.Linkname))
		return nil
	case !info.Mode().IsRegular():
		fmt.Fprintf(c.Err, "warning: skipping %q, which is no file\n", shown)
		return nil
	}
	root := to.parent
	if file == "." {
		file = to.name
	} else {
		if err := to.makeDir(); err != nil {
			return err
		}
		root = to.dir
		if err := root.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
