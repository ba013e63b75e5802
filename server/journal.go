package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// JournalFunc runs journalctl with the arguments until it ends or ctx does, and writes its
// output and its errors to w. The error is an *exec.ExitError if journalctl has failed.
type JournalFunc func(ctx context.Context, args []string, w io.Writer) error

// journalTimeout is the time that a query may take, as in kubelet.
const journalTimeout = 30 * time.Second

// journalDate is the format of journalctl for --since and --until, for a time in UTC. Without the
// zone it would be read in that of the machine, as in kubelet.
const journalDate = "2006-01-02 15:04:05 UTC"

func journalctl(ctx context.Context, args []string, w io.Writer) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.WaitDelay = time.Second // a child that keeps the output open
	return cmd.Run()
}

// serveServices answers with the logs of services. Errors are part of the text, as kubelet
// writes them.
func (h *nodeLogs) serveServices(w http.ResponseWriter, req *http.Request, q *nodeLogQuery) {
	ctx, cancel := context.WithTimeout(req.Context(), journalTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	var out io.Writer = w
	if req.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		gz, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
		defer func() { _ = gz.Close() }()
		out = gz
	}
	var native, inFiles []string
	units := h.units(ctx)
	for _, s := range q.services {
		if bytes.Contains(units, []byte(s+".service")) {
			native = append(native, s)
		} else {
			inFiles = append(inFiles, s)
		}
	}
	if len(native) > 0 {
		err := h.opts.Journal(ctx, q.journalArgs(native), out)
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && (q.boot == nil || *q.boot == 0) {
			fmt.Fprintf(out, "\nerror: journal output not available\n")
		}
	}
	if len(inFiles) > 0 && q.nodeLogOptions != (nodeLogOptions{}) {
		fmt.Fprintf(out, "\noptions present and query resolved to log files for %v\ntry without specifying options\n",
			inFiles)
		return
	}
	for _, s := range inFiles {
		h.copyFileOf(ctx, out, s)
	}
}

// units returns the names of the units that have a journal, nil if there is no journal.
func (h *nodeLogs) units(ctx context.Context) []byte {
	var out bytes.Buffer
	if err := h.opts.Journal(ctx, []string{"--field", "_SYSTEMD_UNIT"}, &out); err != nil {
		return nil
	}
	return out.Bytes()
}

func (q *nodeLogQuery) journalArgs(services []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if q.since != nil {
		args = append(args, "--since="+q.since.UTC().Format(journalDate))
	}
	if q.until != nil {
		args = append(args, "--until="+q.until.UTC().Format(journalDate))
	}
	if q.tailLines != nil {
		args = append(args, "--pager-end", "--lines="+strconv.Itoa(*q.tailLines))
	}
	for _, s := range services {
		args = append(args, "--unit="+s)
	}
	if q.pattern != "" {
		args = append(args, "--grep="+q.pattern)
	}
	if q.boot != nil {
		args = append(args, "--boot", strconv.Itoa(*q.boot))
	}
	return args
}

// copyFileOf copies the log file of a service that has no journal: one of <service>,
// <service>.log and <service>/<service>.log.
func (h *nodeLogs) copyFileOf(ctx context.Context, w io.Writer, service string) {
	err := fs.ErrNotExist
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		if err = h.copyFile(ctx, w, name); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(w, "\nlog not found for %s\n", service)
	case err != nil:
		fmt.Fprintf(w, "\nerror getting log for %s: %v\n", service, err)
	}
}

func (h *nodeLogs) copyFile(ctx context.Context, w io.Writer, name string) error {
	root, err := os.OpenRoot(h.opts.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	f, err := regularFS{root}.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return errors.Join(err, fs.ErrNotExist)
	}
	_, err = io.Copy(w, whileReader{ctx, f})
	return err
}

// whileReader reads until ctx ends.
type whileReader struct {
	ctx context.Context
	io.Reader
}

func (r whileReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
