package credentials

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

// maxFile is the limit for a kubeconfig or a file of certificates, in bytes.
const maxFile = 16 << 20

// loadKubeconfig reads the current context of a kubeconfig.
func loadKubeconfig(r *safefile.Reader, path string) (*rest.Config, error) {
	data, err := r.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	content, err := clientcmd.Load(data)
	if err == nil {
		for _, c := range content.Clusters {
			c.LocationOfOrigin = path // relative paths begin there
		}
		for _, u := range content.AuthInfos {
			u.LocationOfOrigin = path
		}
		err = clientcmd.ResolveLocalPaths(content)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*content, content.CurrentContext,
		&clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return config, nil
}

func hasCertificate(config *rest.Config) bool {
	return len(config.CertData) > 0 || config.CertFile != ""
}

// validCertificate returns an error if the configuration has no client certificate, or one
// that has expired.
func validCertificate(r *safefile.Reader, config *rest.Config, now time.Time) error {
	data, from := config.CertData, "the certificate in the kubeconfig"
	if len(data) == 0 && config.CertFile != "" {
		var err error
		if data, err = r.Read(config.CertFile, maxFile); err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
		from = "the certificate " + config.CertFile
	}
	if len(data) == 0 {
		return errors.New("there is no client certificate in the kubeconfig")
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, cert := range certs {
		if now.After(cert.NotAfter) {
			return fmt.Errorf("%s has expired on %s", from, cert.NotAfter.Format(time.RFC3339))
		}
	}
	return nil
}

// writeKubeconfig writes the kubeconfig of a client with the certificate in the file, for the
// server of the bootstrap configuration. The file is replaced in one step.
func writeKubeconfig(path string, bootstrap *rest.Config, certFile string) error {
	cluster := &clientcmdapi.Cluster{
		Server: bootstrap.Host, InsecureSkipTLSVerify: bootstrap.Insecure, TLSServerName: bootstrap.ServerName,
		CertificateAuthority: bootstrap.CAFile,
	}
	if bootstrap.CAFile == "" {
		cluster.CertificateAuthorityData = bootstrap.CAData
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: certFile,
			ClientKey: certFile}},
		Contexts: map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster",
			AuthInfo: "default-auth", Namespace: "default"}},
		CurrentContext: "default-context",
	})
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return replaceFile(path, content)
}

// replaceFile writes a file of mode 0600, in one step, and makes its directory.
func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return safefile.WriteSync(path, content)
}
