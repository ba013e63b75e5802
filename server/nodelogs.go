package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// NodeLogsOptions are the settings of [NodeLogs]. The zero value is valid.
type NodeLogsOptions struct {
	// Dir is the directory of the node's logs. Default: /var/log.
	Dir string
	// Query allows queries of services, as kubelet's enableSystemLogQuery does.
	Query bool
	// Journal runs journalctl with the arguments and writes its output. Default: the program
	// of that name. It is called for queries only.
	Journal JournalFunc
	// Logger receives errors. Default: that of package slog.
	Logger logr.Logger
}

// NodeLogs returns a handler of /logs/: the files below a directory, and with
// [NodeLogsOptions].Query the logs of services (KEP-2258). The path of a request begins with
// /logs/.
//
// A path that leads out of the directory does not exist, also by a symbolic link, which
// kubelet follows. A link with an absolute path to what is below Dir, as those in
// /var/log/containers have, is followed if it is the last element of the path. Only regular files
// and directories are opened.
func NodeLogs(opts NodeLogsOptions) http.Handler {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.Dir == "" {
		opts.Dir = "/var/log"
	}
	if opts.Journal == nil {
		opts.Journal = journalctl
	}
	return http.StripPrefix("/logs/", &nodeLogs{opts: opts})
}

type nodeLogs struct{ opts NodeLogsOptions }

func (h *nodeLogs) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if h.opts.Query {
		q, err := parseNodeLogQuery(req.URL.Query())
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case q == nil: // a file in the path
		case req.URL.Path != "/" && req.URL.Path != "":
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
			return
		default:
			if err := q.validate(h.opts.Dir); err != nil {
				http.Error(w, err.Error(), http.StatusNotAcceptable)
				return
			}
			if len(q.services) > 0 {
				h.serveServices(w, req, q)
				return
			}
			req = req.Clone(req.Context())
			req.URL.Path = filepath.ToSlash(q.files[0])
		}
	}
	root, err := os.OpenRoot(h.opts.Dir)
	if err != nil {
		h.opts.Logger.Error(err, "The directory of the node's logs cannot be opened", "directory", h.opts.Dir)
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	defer func() { _ = root.Close() }()
	http.FileServer(http.FS(regularFS{root})).ServeHTTP(w, req)
}

// regularFS has the regular files and the directories of a root.
type regularFS struct{ root *os.Root }

// Open opens what name or a link of that name leads to.
func (f regularFS) Open(name string) (fs.File, error) {
	file, err := f.open(name)
	if err != nil {
		if target, ok := f.absoluteLink(name); ok {
			file, err = f.open(target)
		}
	}
	if err != nil {
		return nil, hide(name, err)
	}
	return file, nil
}

// absoluteLink returns where an absolute link leads to, relative to the root, which follows no
// such link. The root refuses a path that leads out of it.
func (f regularFS) absoluteLink(name string) (target string, ok bool) {
	target, err := f.root.Readlink(name)
	if err != nil || !filepath.IsAbs(target) {
		return "", false
	}
	dir, err := filepath.Abs(f.root.Name())
	if err != nil {
		return "", false
	}
	target, err = filepath.Rel(dir, target)
	return target, err == nil
}

// open does not wait for the other end of a pipe, and has no effect on a device.
func (f regularFS) open(name string) (*os.File, error) {
	if err := checkKind(f.root.Stat(name)); err != nil {
		return nil, err
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := checkKind(file.Stat()); err != nil { // it was replaced
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

func checkKind(info fs.FileInfo, err error) error {
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return errors.New("neither a file nor a directory")
	}
	return err
}

// hide returns the error of a file that does not exist, so that a client does not learn what is
// outside of the directory.
func hide(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
