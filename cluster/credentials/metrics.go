package credentials

import (
	"crypto/tls"
	"time"
)

// Metrics receives measurements of one certificate. The methods must not block, and are safe for
// concurrent use.
type Metrics interface {
	// CertificateExpires is called with the end of each certificate that is used from now on.
	CertificateExpires(at time.Time)
	// CertificateRotated is called with the age of a certificate that another one has replaced.
	CertificateRotated(age time.Duration)
	// RenewalFailed is called each time that a certificate was requested without success. It is
	// requested again.
	RenewalFailed()
}

// noMetrics discards everything.
type noMetrics struct{}

func (noMetrics) CertificateExpires(time.Time)     {}
func (noMetrics) CertificateRotated(time.Duration) {}
func (noMetrics) RenewalFailed()                   {}

// reportCertificate reports a certificate that is used from now on, unless it is the old one, read
// again from its file. old is nil if there was none.
func reportCertificate(m Metrics, old, cert *tls.Certificate) {
	if cert.Leaf == nil || old != nil && old.Leaf != nil && old.Leaf.Equal(cert.Leaf) {
		return
	}
	m.CertificateExpires(cert.Leaf.NotAfter)
	if old != nil && old.Leaf != nil {
		m.CertificateRotated(time.Since(old.Leaf.NotBefore))
	}
}
