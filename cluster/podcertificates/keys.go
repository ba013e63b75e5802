package podcertificates

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// newKey makes a private key of a type of the API, and a request for a certificate that is
// signed with it and otherwise empty, as kubelet's.
func newKey(keyType string) (keyPEM, request []byte, err error) {
	key, err := generate(keyType)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key of the type %q: %w", keyType, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key of the type %q: %w", keyType, err)
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing with a key of the type %q: %w", keyType, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), request, nil
}

// proofOfPossession returns the public key of a private one of newKey, and its signature of the UID of the pod: what an
// API server before 1.36 requires in place of a signed request.
func proofOfPossession(keyPEM []byte, pod types.UID) (public, proof []byte, err error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, nil, errors.New("the private key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("decoding the private key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("a private key of the type %T cannot sign", key)
	}
	if public, err = x509.MarshalPKIXPublicKey(signer.Public()); err != nil {
		return nil, nil, fmt.Errorf("encoding the public key: %w", err)
	}
	hash := sha256.Sum256([]byte(pod))
	signed, how := hash[:], crypto.SignerOpts(crypto.SHA256)
	switch key.(type) {
	case ed25519.PrivateKey:
		signed, how = []byte(pod), crypto.Hash(0)
	case *rsa.PrivateKey:
		how = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	}
	if proof, err = signer.Sign(rand.Reader, signed, how); err != nil {
		return nil, nil, fmt.Errorf("signing the UID of the pod: %w", err)
	}
	return public, proof, nil
}

// generate makes a key. The types are those of PodCertificateProjection.keyType.
func generate(keyType string) (crypto.Signer, error) {
	switch keyType {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	default:
		return nil, fmt.Errorf("%w of a key", errUnknownType)
	}
}

// cleanChain returns the certificates without headers and comments (API reference:
// PodCertificateRequestStatus, certificateChain).
func cleanChain(chain string) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}) // a buffer takes everything
	}
	return out.Bytes()
}
