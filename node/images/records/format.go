package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	sigsjson "sigs.k8s.io/json"
)

// The names and versions are those of kubelet 1.36 and 1.37, which write v1beta1, and also read v1alpha1 of
// kubelet 1.33 and 1.34.
const (
	filePrefix = "sha256-"
	tempSuffix = ".tmp"

	group      = "kubelet.config.k8s.io/"
	version    = group + "v1beta1"
	oldVersion = group + "v1alpha1"

	intentKind = "ImagePullIntent"
	recordKind = "ImagePulledRecord"

	// maxFile is the size of the largest file that is read, in bytes. A record with [maxSecrets] secrets has 300 KiB
	// for each name.
	maxFile = 16 << 20
)

// typeMeta are the first fields of each file.
type typeMeta struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
}

// check returns an error if the file has another kind or an unknown version.
func (m typeMeta) check(kind string) error {
	if m.Kind != kind || m.APIVersion != version && m.APIVersion != oldVersion {
		return fmt.Errorf("it has kind %q and version %q, not %s of %s", m.Kind, m.APIVersion, kind, version)
	}
	return nil
}

// intentFile is the content of a file in the directory "pulling".
type intentFile struct {
	typeMeta
	Image string `json:"image"`
}

// recordFile is the content of a file in the directory "pulled". One that is shared is not changed any more.
type recordFile struct {
	typeMeta
	// LastUpdatedTime is the time of the last change, in seconds.
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime"`
	// ImageRef is the ID of the image.
	ImageRef string `json:"imageRef"`
	// Credentials has the credentials with which the image was pulled, by its name without tag and digest as pods have
	// it.
	Credentials map[string]allowed `json:"credentialMapping,omitempty"`
}

// allowed says who may use an image under one name. If NodePods is set, the lists are empty.
type allowed struct {
	Secrets         []secretID  `json:"kubernetesSecrets,omitempty"`
	ServiceAccounts []accountID `json:"kubernetesServiceAccounts,omitempty"`
	NodePods        bool        `json:"nodePodsAccessible,omitempty"`
}

type secretID struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Hash      string    `json:"credentialHash"`
}

type accountID struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// fileName returns the name of the file about an image or a reference.
func fileName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filePrefix + hex.EncodeToString(sum[:])
}

// isFileName reports whether a file of a directory can be a record or an intent.
func isFileName(name string) bool {
	return strings.HasPrefix(name, filePrefix) && !strings.HasSuffix(name, tempSuffix)
}

// encodeIntent returns the file of an intent.
func encodeIntent(image string) ([]byte, error) {
	return encode(intentFile{typeMeta: typeMeta{Kind: intentKind, APIVersion: version}, Image: image})
}

// encodeRecord returns the file of a record, in the version of today.
func encodeRecord(r *recordFile) ([]byte, error) {
	out := *r
	out.typeMeta = typeMeta{Kind: recordKind, APIVersion: version}
	return encode(out)
}

func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// decodeIntent returns the image of an intent. name is that of the file.
func decodeIntent(name string, data []byte) (image string, err error) {
	var f intentFile
	if err := decode(data, &f); err != nil {
		return "", err
	}
	if err := f.check(intentKind); err != nil {
		return "", err
	}
	if fileName(f.Image) != name {
		return "", fmt.Errorf("it is the intent to pull image %q, which has another file name", f.Image)
	}
	return f.Image, nil
}

// decodeRecord returns a record. name is that of the file.
func decodeRecord(name string, data []byte) (*recordFile, error) {
	f := new(recordFile)
	if err := decode(data, f); err != nil {
		return nil, err
	}
	if err := f.check(recordKind); err != nil {
		return nil, err
	}
	if fileName(f.ImageRef) != name {
		return nil, fmt.Errorf("it is the record of image %q, which has another file name", f.ImageRef)
	}
	return f, nil
}

// decode parses JSON. As in kubelet, a field that is not known is an error: a record that is understood in part could
// permit too much.
func decode(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	strict, err := sigsjson.UnmarshalStrict(data, v)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

// now returns the time for a record.
func now() metav1.Time { return metav1.NewTime(time.Now()) }
