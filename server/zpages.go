package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// component is the name of what these pages are about, that of kubelet, since clients look for it.
const component = "kubelet"

// zPagesVersion is the API version of the JSON form of /flagz and /statusz.
const zPagesVersion = "config.k8s.io/v1beta1"

// zPageWarning is the second line of the text form, as in kubelet.
const zPageWarning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility " +
	"guarantees and is for debugging purposes only.\n"

// Configz returns a handler of /configz. config returns a KubeletConfiguration of
// kubelet.config.k8s.io/v1beta1, as it is in effect. It is called for each request, and what it
// returns becomes the member kubeletconfig of the answer in JSON.
func Configz(config func() (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		value, err := config()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeJSON(w, map[string]any{"kubeletconfig": value})
	})
}

// Flagz returns a handler of /flagz. flags returns the flags of the program with their values; it
// is called for each request. The answer is text, or JSON if the client accepts nothing else.
func Flagz(flags func() map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		values := flags()
		if wantsJSON(req) {
			writeJSON(w, struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
				Flags             map[string]string `json:"flags,omitempty"`
			}{metav1.TypeMeta{Kind: "Flagz", APIVersion: zPagesVersion}, metav1.ObjectMeta{Name: component}, values})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "\n%s flagz\n%s", component, zPageWarning)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(w, "%s=%s\n", name, values[name])
		}
	})
}

// Statusz returns a handler of /statusz: the start time and the version of the program, and the
// paths that it serves. The answer is text, or JSON if the client accepts nothing else. The start
// time is that of the call of Statusz.
func Statusz(version string, paths []string) http.Handler {
	started := time.Now()
	paths = slices.Compact(slices.Sorted(slices.Values(paths)))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		up := int64(max(0, time.Since(started)) / time.Second)
		if wantsJSON(req) {
			writeJSON(w, struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
				StartTime         metav1.Time `json:"startTime"`
				UptimeSeconds     int64       `json:"uptimeSeconds"`
				GoVersion         string      `json:"goVersion"`
				BinaryVersion     string      `json:"binaryVersion"`
				Paths             []string    `json:"paths"`
			}{
				metav1.TypeMeta{Kind: "Statusz", APIVersion: zPagesVersion}, metav1.ObjectMeta{Name: component},
				metav1.NewTime(started), up, goruntime.Version(), version, paths,
			})
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "\n%s statusz\n%s\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: "+
			"%s\n\nPaths: %s\n", component, zPageWarning,
			started.Format(time.UnixDate), up/3600, up/60%60, up%60, goruntime.Version(), version,
			strings.Join(paths, " "))
	})
}

// wantsJSON reports whether a client accepts JSON and no text.
func wantsJSON(req *http.Request) bool {
	accept := req.Header.Get("Accept")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/") &&
		!strings.Contains(accept, "*/*")
}

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
}

// maxLevel bounds the body of a request to change the verbosity, in bytes.
const maxLevel = 64

// Verbosity returns a handler of /debug/flags/v. A PUT has the new value of kubelet's flag -v as
// its body, which set gets; its error means that the value is not valid.
func Verbosity(set func(level string) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPut {
			http.Error(w, "unsupported http method", http.StatusNotAcceptable)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxLevel))
		if err != nil {
			http.Error(w, "error reading request body: "+err.Error(), http.StatusBadRequest)
			return
		}
		level := cmp.Or(strings.TrimSpace(string(body)), "0")
		if err := set(level); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "successfully set klog.logging.verbosity to %s", level)
	})
}
