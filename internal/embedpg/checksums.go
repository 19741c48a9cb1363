package embedpg

// pinnedSum is the SHA-256 of an archive, checked before anything of it is
// unpacked or run; empty if unknown. Version 15.13.0 and 14.18.0 were never published
// for 64-bit ARM, and Alpine's are not pinned: for those the sum published
// beside the archive is used, which a damaged download fails and a malicious
// repository does not.
func pinnedSum(platform, version string) string {
	switch version + " " + platform {
	case "18.3.0 linux-amd64":
		return "1974c3a59c3ae010e9818e81637e425aad94eaac26e4ef533b42e081fe7ca345"
	case "18.3.0 linux-arm64v8":
		return "1fb555a6602c13a113ab1f0cc9224d599948e85e51ac5f001393605505eaf78e"
	case "18.3.0 darwin-amd64":
		return "cb68c57232945f5e74db946e6077d70cec56bfed35959b21acc750cc80ca0977"
	case "18.3.0 darwin-arm64v8":
		return "a18ec9ec6a905e04f5a08a8f7870bddadd635feb54dee332a3daf80fada3cb1a"
	case "17.5.0 linux-amd64":
		return "646f3269075d1a23904127374e3cdbcef96beb32979fedee25d835877400fcbe"
	case "17.5.0 linux-arm64v8":
		return "e02f27ff50ff2d90b6541d54f3f108505aacd84ea53c2890e976a684bfea2752"
	case "17.5.0 darwin-amd64":
		return "fb70f783928e77c3d6ef5ca8ed644f1ac502f740fcfc032a375c8347820f2bdd"
	case "17.5.0 darwin-arm64v8":
		return "e9d3398e10c2ec926395498b03e75ad1a24eeaed82895e756a7e173b202cf6de"
	case "16.9.0 linux-amd64":
		return "d983cee24678490199e1684d6a93f49f84673696cb6f0db64e880a4cf233017b"
	case "16.9.0 linux-arm64v8":
		return "9d113402f70f4d134250916319ad83e87cba3796bd73a606c28dbabd326b4fa3"
	case "16.9.0 darwin-amd64":
		return "0be7111599308e8a670ae72e9512a4b902dabe3e2e0cda0539a0447a5bdacb26"
	case "16.9.0 darwin-arm64v8":
		return "53b2672c602e16e4c94fb56b9aa68cc26a0bbb0df851f256f41a2cdbeccc9cb6"
	case "15.13.0 linux-amd64":
		return "cc0177d8a22b85ed266f6204c0642fd5c24ab583d1ef221d4b60bce29d4fa4ef"
	case "15.13.0 darwin-amd64":
		return "1befcdf1f4ef59aaac5efbff997de798984f7a03ab1fb6b32771fbfb21178dc5"
	case "14.18.0 linux-amd64":
		return "d08a4c4703faf3f78ed74af72f1794d32ad3798f7dedf46abd383f809a99262b"
	case "14.18.0 darwin-amd64":
		return "0e4764346ad227223e7ea0d679e508067e5809cf640a5146c1d3d701db90941c"
	}
	return ""
}
