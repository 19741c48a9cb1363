// Package certs provides the certificates of a server: from files, which it reads again when they change, or from an
// ACME server such as Let's Encrypt.
package certs
