package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kubelet/config/v1"
	providerv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/text"
)

const (
	// runTimeout is kubelet's time limit for a plugin.
	runTimeout = time.Minute
	// closeDelay is how long the output is read after the plugin has ended: a child may hold it open.
	closeDelay = time.Second
	// maxAnswer is the limit for the output of a plugin, in bytes.
	maxAnswer = 1 << 20
	// keptErrors is how much of the error output is read into memory, in bytes; loggedErrors of it are logged.
	keptErrors, loggedErrors = 64 << 10, 1 << 10
)

// execution is one execution of a plugin.
type execution struct {
	reader   *safefile.Reader
	binDir   string
	provider *configv1.CredentialProvider
	input    []byte
	timeout  time.Duration
}

var errTooMuchOutput = fmt.Errorf("its output has more than %d bytes", maxAnswer)

// run executes the plugin, and returns its output and the beginning of its error output. If the plugin exceeds the time
// limit or the limit of its output, or ctx ends, the plugin is killed with its process group. The text of the error has
// no path.
func (e execution) run(ctx context.Context) (stdout []byte, stderr string, err error) {
	limited, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	path, err := findPlugin(e.reader, e.binDir, e.provider.Name)
	if err != nil {
		return nil, "", notStarted(err)
	}
	out, errOut := &limitedBuffer{limit: maxAnswer, exceeded: cancel}, &limitedBuffer{limit: keptErrors}
	cmd := exec.CommandContext(limited, path, e.provider.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(e.input), out, errOut
	cmd.WaitDelay = closeDelay
	cmd.Env = os.Environ()
	for _, v := range e.provider.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value) // the last value of a name is used
	}
	ownGroup(cmd)
	err = cmd.Start()
	if err != nil {
		return nil, "", notStarted(err)
	}
	err = cmd.Wait()
	stderr = string(errOut.kept)
	switch {
	case ctx.Err() != nil:
		return nil, stderr, flow.Ended(ctx)
	case out.full:
		return nil, stderr, errTooMuchOutput
	case limited.Err() != nil:
		return nil, stderr, fmt.Errorf("it was killed after %v", e.timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // a child of a plugin that has ended well holds the output
		return nil, stderr, err
	}
	return out.kept, stderr, nil
}

// notStarted returns an error without the path of the executable, which is not for the owner of a pod.
func notStarted(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		err = e.Err
	}
	return fmt.Errorf("it cannot be executed: %w", err)
}

// limitedBuffer keeps the first bytes, and discards the rest. It has no other methods for writing, which [io.Copy]
// would prefer.
type limitedBuffer struct {
	kept  []byte
	limit int
	// exceeded is called when there are more bytes. It may be nil.
	exceeded func()
	full     bool
}

func (b *limitedBuffer) Write(data []byte) (int, error) {
	room := b.limit - len(b.kept)
	if len(data) <= room {
		b.kept = append(b.kept, data...)
		return len(data), nil
	}
	b.kept = append(b.kept, data[:room]...)
	b.full = true
	if b.exceeded != nil {
		b.exceeded()
		return room, io.ErrShortWrite
	}
	return len(data), nil
}

// encodeRequest returns the input of a plugin.
func encodeRequest(apiVersion, image, token string, annotations map[string]string) ([]byte, error) {
	data, err := json.Marshal(providerv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{Kind: "CredentialProviderRequest", APIVersion: apiVersion},
		Image:    image, ServiceAccountToken: token, ServiceAccountAnnotations: annotations,
	})
	return append(data, '\n'), err
}

// decodeResponse decodes the output of a plugin. The error has nothing of it but its type: it has credentials.
func decodeResponse(data []byte, apiVersion string) (*providerv1.CredentialProviderResponse, error) {
	var meta metav1.TypeMeta
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		return nil, errors.New("its output is not a CredentialProviderResponse in JSON")
	}
	if meta.Kind != "CredentialProviderResponse" || meta.APIVersion != apiVersion {
		return nil, fmt.Errorf("its output has the kind %.50q of %.100q: must be CredentialProviderResponse of %s",
			meta.Kind, meta.APIVersion, apiVersion)
	}
	var response providerv1.CredentialProviderResponse
	problems, err := strictjson.UnmarshalStrict(data, &response)
	if err != nil || len(problems) > 0 {
		return nil, errors.New("its output is a CredentialProviderResponse with fields that are unknown, duplicate " +
			"or of the wrong type")
	}
	switch response.CacheKeyType {
	case providerv1.ImagePluginCacheKeyType, providerv1.RegistryPluginCacheKeyType, providerv1.GlobalPluginCacheKeyType:
		return &response, nil
	default:
		return nil, fmt.Errorf("its output has the cacheKeyType %.50q: must be Image, Registry or Global",
			response.CacheKeyType)
	}
}

// forLog returns the error output without the token.
func forLog(stderr, token string) string {
	if token != "" {
		stderr = strings.ReplaceAll(stderr, token, "<masked>")
	}
	return text.Clip(strings.TrimSpace(stderr), loggedErrors)
}
