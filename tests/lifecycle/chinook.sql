-- A music shop in the shape of Chinook: quoted CamelCase, a table that refers to itself, a composite key, multi-row inserts.
create table public."Artist" ("ArtistId" int not null, "Name" varchar(120), constraint "PK_Artist" primary key ("ArtistId"));
create table public."Album" (
  "AlbumId" int not null, "Title" varchar(160) not null, "ArtistId" int not null,
  constraint "PK_Album" primary key ("AlbumId"),
  constraint "FK_AlbumArtistId" foreign key ("ArtistId") references public."Artist" ("ArtistId")
);
create index "IFK_AlbumArtistId" on public."Album" ("ArtistId");
create table public."Employee" (
  "EmployeeId" int not null, "LastName" varchar(20) not null, "ReportsTo" int, "HireDate" timestamp,
  constraint "PK_Employee" primary key ("EmployeeId"),
  constraint "FK_EmployeeReportsTo" foreign key ("ReportsTo") references public."Employee" ("EmployeeId")
);
create table public."Customer" (
  "CustomerId" int not null, "FirstName" varchar(40) not null, "SupportRepId" int,
  constraint "PK_Customer" primary key ("CustomerId"),
  constraint "FK_CustomerSupportRepId" foreign key ("SupportRepId") references public."Employee" ("EmployeeId")
);
create table public."Track" (
  "TrackId" int not null, "Name" varchar(200) not null, "AlbumId" int, "UnitPrice" numeric(10, 2) not null,
  constraint "PK_Track" primary key ("TrackId"),
  constraint "FK_TrackAlbumId" foreign key ("AlbumId") references public."Album" ("AlbumId")
);
create table public."Playlist" ("PlaylistId" int not null, "Name" varchar(120), constraint "PK_Playlist" primary key ("PlaylistId"));
create table public."PlaylistTrack" (
  "PlaylistId" int not null, "TrackId" int not null,
  constraint "PK_PlaylistTrack" primary key ("PlaylistId", "TrackId"),
  constraint "FK_PlaylistTrackPlaylistId" foreign key ("PlaylistId") references public."Playlist" ("PlaylistId"),
  constraint "FK_PlaylistTrackTrackId" foreign key ("TrackId") references public."Track" ("TrackId")
);
