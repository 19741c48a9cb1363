-- say puts a chat into a room with the caller's transaction: members get it if and when that commits, and a stored room keeps it. Any language can call it.
--
-- The rows of all rooms are messages of one stream, with the room as key. SQL does not know which rooms are stored: that is a setting of the servers. So
-- every chat is a row, and the servers give it to the members of its room, whether the room is stored or not. Only stored rooms have a history.
--
-- A chat that a server could not have taken is refused here: a server leaves out such rows. So no field that members trust may be there in another
-- spelling, as a server checks it; jsonb has each field once. The letter s also has a lower case beyond ASCII, of the bytes \305\277. The fields of a request
-- are left out. Numbers and spaces are as jsonb writes them.
--
-- SQLSTATE TW003: no server has made the stream yet; TW004: not a valid chat.
CREATE FUNCTION tidewire.say(room text, chat jsonb) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	field text;
	rest text;
	payload bytea;
	target int;
BEGIN
	IF room IS NULL OR octet_length(convert_to(room, 'UTF8')) NOT BETWEEN 1 AND 128 THEN
		RAISE EXCEPTION 'room: want a name of 1 to 128 bytes' USING ERRCODE = 'TW004';
	END IF;
	IF chat IS NULL OR jsonb_typeof(chat) <> 'object' THEN
		RAISE EXCEPTION 'chat: want a JSON object' USING ERRCODE = 'TW004';
	END IF;
	FOR field IN SELECT jsonb_object_keys(chat) LOOP
		IF field IN ('position', 'time') THEN
			RAISE EXCEPTION 'chat field %: want none: the server adds it', field USING ERRCODE = 'TW004';
		ELSIF field IN ('on_lag', 'presence', 'after', 'history', 'batch') THEN
			RAISE EXCEPTION 'chat field %: want none: it is a field of a join', field USING ERRCODE = 'TW004';
		ELSIF field NOT IN ('type', 'id', 'room', 'user') AND replace(lower(encode(convert_to(field, 'UTF8'), 'escape') COLLATE "C"), E'\\305\\277', 's')
			IN ('type', 'id', 'room', 'user', 'position', 'time') THEN
			RAISE EXCEPTION 'chat field %: want it spelled in no other way', quote_literal(field) USING ERRCODE = 'TW004';
		END IF;
	END LOOP;
	IF jsonb_typeof(chat -> 'text') IS DISTINCT FROM 'string' THEN
		RAISE EXCEPTION 'chat field text: want a string' USING ERRCODE = 'TW004';
	END IF;
	IF coalesce(chat -> 'type', '"chat"') NOT IN ('"chat"', '""', 'null') THEN
		RAISE EXCEPTION 'chat field type: want chat, or none' USING ERRCODE = 'TW004';
	END IF;
	IF coalesce(chat -> 'room', 'null') NOT IN ('null', to_jsonb(room)) THEN
		RAISE EXCEPTION 'chat field room: want that of the first argument, or none' USING ERRCODE = 'TW004';
	END IF;
	IF jsonb_typeof(chat -> 'user') NOT IN ('string', 'null') OR octet_length(convert_to(chat ->> 'user', 'UTF8')) > 128 THEN
		RAISE EXCEPTION 'chat field user: want a string of at most 128 bytes' USING ERRCODE = 'TW004';
	END IF;
	rest := (chat - ARRAY['type', 'room', 'id', 'client', 'sequence'])::text; -- it has a text
	payload := convert_to('{"type":"chat","room":' || to_json(room) || ',' || substr(rest, 2, length(rest) - 2) || ',"time":"'
		|| to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"}', 'UTF8');
	IF octet_length(payload) > 1024 * 1024 THEN
		RAISE EXCEPTION 'chat: want at most 1048576 bytes' USING ERRCODE = 'TW004';
	END IF;
	target := (SELECT s.id FROM tidewire.stream AS s WHERE s.name = 'tidewire.rooms' AND s.state = 'ready');
	IF target IS NULL THEN
		RAISE EXCEPTION 'there are no rooms yet: start a server with --stored-rooms' USING ERRCODE = 'TW003';
	END IF;
	PERFORM tidewire.add_to_outbox(target, ARRAY[room], ARRAY[NULL::jsonb], ARRAY[payload]);
END
$$;
